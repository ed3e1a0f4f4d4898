"""What is sent to servers and how their answers are read: each server by a route that it really has."""

from __future__ import annotations

import json
import random
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


class Bodies(StrEnum):
    """How the requests of a window differ: a server that remembers what it saw last is fast on one body alone.

    ``SAME`` is one body for ever; ``NUMBERS`` are other numbers of the same width, all bodies of one length;
    ``WIDTHS`` are numbers of one to seven digits; ``IDS`` are the same numbers under another id each time.
    """

    SAME = "same"
    NUMBERS = "numbers"
    WIDTHS = "widths"
    IDS = "ids"


DIFFERENT = 4096
"""Bodies that take turns where numbers differ: more than anybody remembers."""
ID_PLACE = "TIERCEL-REQUEST-ID"
"""Stands where a load tool has to put another id each time."""


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body and the headers that tell of it."""

    content: bytes  # what is sent; with :data:`ID_PLACE` in it where ids differ
    headers: Mapping[str, str]  # of every request
    others: tuple[bytes, ...] = ()  # what takes turns with it, of the same headers


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


def bodies_of(model: Model, bodies: Bodies) -> Body:
    """The requests of a window in the Open Inference Protocol's JSON, which differ in one respect or none."""
    if bodies is Bodies.SAME:
        return body_of(model, Form.JSON)
    described: dict[str, Any] = {"name": INPUT, "shape": list(model.row.shape), "datatype": "FP32"}
    headers = {"Content-Type": JSON_TYPE}
    if bodies is Bodies.IDS:
        data = [round(float(value), 4) for value in model.row.reshape(-1)]
        return Body(_json({"id": ID_PLACE, "inputs": [described | {"data": data}]}), headers)
    source = random.Random(f"{model.name} {bodies}")
    rows = ([_number(source, bodies) for _ in range(model.row.size)] for _ in range(DIFFERENT))
    first, *others = (_json({"inputs": [described | {"data": row}]}) for row in rows)
    return Body(first, headers, tuple(others))


def _number(source: random.Random, bodies: Bodies) -> float:
    # From 0.1001 to 0.9999 without a zero at the end: always six characters.
    if bodies is Bodies.NUMBERS:
        return (source.randrange(1001, 10_000) // 10 * 10 + source.randrange(1, 10)) / 10_000
    return round(source.uniform(-1.0, 1.0) * 10.0 ** source.randrange(0, 3), source.randrange(0, 5))


def grpc_frame(model: Model) -> bytes:
    """ModelInfer's request as it stands in HTTP/2 data: a byte, a length and the message."""
    from tiercel.inference import open_inference_grpc_pb2 as protocol

    request = protocol.ModelInferRequest(model_name=model.name, raw_input_contents=[model.row.tobytes()])
    request.inputs.add(name=INPUT, datatype="FP32", shape=model.row.shape)
    message = request.SerializeToString()
    return struct.pack(">BI", 0, len(message)) + message


def answer_in(content: bytes, headers: Mapping[str, str], form: Form) -> Array:
    """The numbers of an answer, flat.

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
