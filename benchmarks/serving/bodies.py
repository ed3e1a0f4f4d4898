"""What is sent to servers and how their answers are read: each server by a route that it really has."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from benchmarks.serving.models import INPUT, OUTPUT, Array, Model

JSON_TYPE, OCTETS = "application/json", "application/octet-stream"
HEADER_LENGTH = "Inference-Header-Content-Length"


class Form(StrEnum):
    """How a row travels.

    ``JSON`` is the Open Inference Protocol's body, also on routes of a server's own; ``PLAIN`` is ``{"x": [row]}`` for
    servers that map JSON to arguments; ``BINARY`` is the protocol's binary tensor data extension, both ways; ``RAW`` is
    the float32 bytes of the row and nothing else, both ways; ``GRPC`` is ModelInfer with raw contents.
    """

    JSON = "json"
    PLAIN = "plain"
    BINARY = "binary"
    RAW = "raw"
    GRPC = "grpc"

    @property
    def kind(self) -> str:
        """What forms are compared with each other as: ``json``, ``binary`` or ``grpc``."""
        return {"plain": "json", "raw": "binary"}.get(self.value, self.value)


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body and the headers that tell of it."""

    content: bytes
    headers: Mapping[str, str]


def body_of(model: Model, form: Form) -> Body:
    """The request for the model's row."""
    if form is Form.RAW:
        return Body(model.row.tobytes(), {"Content-Type": OCTETS})
    if form is Form.GRPC:
        return Body(grpc_frame(model), {"Content-Type": "application/grpc"})
    if form is Form.PLAIN:
        return Body(_json({"x": _rounded(model.row)}), {"Content-Type": JSON_TYPE})
    described: dict[str, Any] = {"name": INPUT, "shape": list(model.row.shape), "datatype": "FP32"}
    if form is Form.JSON:
        described["data"] = [round(float(value), 4) for value in model.row.reshape(-1)]
        return Body(_json({"inputs": [described]}), {"Content-Type": JSON_TYPE})
    described["parameters"] = {"binary_data_size": model.row.nbytes}
    outputs = [{"name": OUTPUT, "parameters": {"binary_data": True}}]
    head = _json({"inputs": [described], "outputs": outputs})
    return Body(head + model.row.tobytes(), {"Content-Type": OCTETS, HEADER_LENGTH: str(len(head))})


def grpc_frame(model: Model) -> bytes:
    """ModelInfer's request as it stands in HTTP/2 data: a byte, a length and the message."""
    from tiercel.inference import open_inference_grpc_pb2 as protocol

    request = protocol.ModelInferRequest(model_name=model.name, raw_input_contents=[model.row.tobytes()])
    request.inputs.add(name=INPUT, datatype="FP32", shape=model.row.shape)
    message = request.SerializeToString()
    return struct.pack(">BI", 0, len(message)) + message


def answer_in(content: bytes, headers: Mapping[str, str], form: Form) -> Array:
    """The numbers of an answer, flat.

    Args:
        content: The answer's body.
        headers: Its headers, names in lower case.
        form: How it was asked.

    Raises:
        ValueError: It cannot be read.
    """
    if form is Form.RAW:
        return np.frombuffer(content, np.float32)
    length = headers.get(HEADER_LENGTH.lower())
    if form is Form.BINARY and length is not None:
        return np.frombuffer(content[int(length) :], np.float32)
    found = json.loads(content)
    if isinstance(found, dict):
        found = found["outputs"][0]["data"] if "outputs" in found else found["y"]
    return np.asarray(found, np.float32).reshape(-1)


def _rounded(row: Array) -> Any:
    return np.vectorize(lambda value: round(float(value), 4), otypes=[float])(row).tolist()


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
