"""Callers of the inference server, one for each way to ask: JSON, binary, gRPC with raw and with typed contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from testing.serving_process import ServingProcess
from tiercel.core.errors import TiercelError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc
from tiercel.serving.tensors import DATA_TYPES, DataType, decode_raw, encode_raw

Array = npt.NDArray[Any]
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said."""

    version: str
    outputs: dict[str, Array]


class RefusedError(Exception):
    """What the server said instead, as both protocols put it."""

    def __init__(self, status: int | str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message

    def is_a(self, error: type[TiercelError]) -> bool:
        return self.status in {error.http_status, error.grpc_status}


def data_type_of(value: Array) -> DataType:
    return next(kind for kind in DATA_TYPES if kind.dtype == value.dtype)


class Rest:
    """HTTP."""

    def __init__(self, server: ServingProcess, binary: bool) -> None:
        self._server = server
        self._binary = binary

    def _call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        reply = self._server.request(method, path, body, headers)
        if reply.status != 200:
            raise RefusedError(reply.status, reply.error)
        return reply

    def infer(
        self, model: str, inputs: Mapping[str, Array], outputs: list[str], version: str = "", **parameters: Any
    ) -> Answer:
        tail = b""
        described: list[dict[str, Any]] = []
        for name, value in inputs.items():
            tensor: dict[str, Any] = {"name": name, "datatype": data_type_of(value).name, "shape": list(value.shape)}
            if self._binary:
                data = encode_raw(value)
                tensor["parameters"] = {"binary_data_size": len(data)}
                tail += data
            else:
                tensor["data"] = value.ravel().tolist()
            described.append(tensor)
        content = {
            "inputs": described,
            "outputs": [{"name": name} for name in outputs],
            "parameters": parameters | {"binary_data_output": self._binary},
        }
        head = json.dumps(content).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))} if self._binary else {}
        path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
        return self._decode(self._call("POST", path, head + tail, headers))

    def _decode(self, reply: Any) -> Answer:
        length = int(reply.headers.get("inference-header-content-length", len(reply.body)))
        content = json.loads(reply.body[:length])
        tail = reply.body[length:]
        found: dict[str, Array] = {}
        for output in content["outputs"]:
            kind = next(kind for kind in DATA_TYPES if kind.name == output["datatype"])
            shape = tuple(output["shape"])
            if self._binary:
                size = output["parameters"]["binary_data_size"]
                found[output["name"]] = decode_raw("", kind, shape, tail[:size])
                tail = tail[size:]
            else:
                assert "parameters" not in output
                found[output["name"]] = np.array(output["data"], kind.dtype).reshape(shape)
        assert tail == b""
        return Answer(content["model_version"], found)

    def metadata(self, model: str, version: str = "") -> Any:
        return self._call("GET", f"/v2/models/{model}" + (f"/versions/{version}" if version else "")).content

    def ready(self, model: str, version: str = "") -> bool:
        path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/ready"
        return self._server.request("GET", path).status == 200

    def server(self) -> Any:
        return self._call("GET", "/v2").content

    def index(self, only_ready: bool = False) -> Any:
        return self._call("POST", "/v2/repository/index", {"ready": only_ready}).content

    def load(self, model: str) -> None:
        self._call("POST", f"/v2/repository/models/{model}/load")

    def unload(self, model: str) -> None:
        self._call("POST", f"/v2/repository/models/{model}/unload")


class Grpc:
    """gRPC."""

    def __init__(self, server: ServingProcess, raw: bool) -> None:
        self._channel = grpc.insecure_channel(server.grpc)
        self._stub = pb_grpc.GRPCInferenceServiceStub(self._channel)
        self._raw = raw

    def close(self) -> None:
        self._channel.close()

    @staticmethod
    def _call(method: Any, message: Any) -> Any:
        try:
            return method(message, timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise RefusedError(error.code().name, error.details() or "") from error

    def infer(
        self, model: str, inputs: Mapping[str, Array], outputs: list[str], version: str = "", **parameters: int
    ) -> Answer:
        request = pb.ModelInferRequest(model_name=model, model_version=version)
        for key, parameter in parameters.items():
            request.parameters[key].int64_param = parameter
        for name, value in inputs.items():
            kind = data_type_of(value)
            tensor = request.inputs.add(name=name, datatype=kind.name, shape=list(value.shape))
            if self._raw or not kind.contents:
                request.raw_input_contents.append(encode_raw(value))
            else:
                elements = value.ravel().tolist()
                if kind.is_bytes:
                    elements = [element.encode() for element in elements]
                getattr(tensor.contents, kind.contents).extend(elements)
        for name in outputs:
            request.outputs.add(name=name)
        return self._decode(self._call(self._stub.ModelInfer, request))

    @staticmethod
    def _decode(answer: pb.ModelInferResponse) -> Answer:
        found: dict[str, Array] = {}
        for position, output in enumerate(answer.outputs):
            kind = next(kind for kind in DATA_TYPES if kind.name == output.datatype)
            shape = tuple(output.shape)
            if answer.raw_output_contents:
                found[output.name] = decode_raw("", kind, shape, answer.raw_output_contents[position])
            else:
                elements = list(getattr(output.contents, kind.contents))
                if kind.is_bytes:
                    elements = [element.decode() for element in elements]
                found[output.name] = np.array(elements, kind.dtype).reshape(shape)
        return Answer(answer.model_version, found)

    def metadata(self, model: str, version: str = "") -> Any:
        found = self._call(self._stub.ModelMetadata, pb.ModelMetadataRequest(name=model, version=version))
        described = {
            side: [{"name": each.name, "datatype": each.datatype, "shape": list(each.shape)} for each in tensors]
            for side, tensors in (("inputs", found.inputs), ("outputs", found.outputs))
        }
        return {"name": found.name, "versions": list(found.versions), "platform": found.platform, **described}

    def ready(self, model: str, version: str = "") -> bool:
        request = pb.ModelReadyRequest(name=model, version=version)
        return bool(self._call(self._stub.ModelReady, request).ready)

    def server(self) -> Any:
        found = self._call(self._stub.ServerMetadata, pb.ServerMetadataRequest())
        return {"name": found.name, "version": found.version, "extensions": list(found.extensions)}

    def index(self, only_ready: bool = False) -> Any:
        found = self._call(self._stub.RepositoryIndex, pb.RepositoryIndexRequest(ready=only_ready))
        fields = ("name", "version", "state", "reason")
        return [{field: getattr(each, field) for field in fields} for each in found.models]

    def load(self, model: str) -> None:
        self._call(self._stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name=model))

    def unload(self, model: str) -> None:
        self._call(self._stub.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name=model))


Client = Rest | Grpc
