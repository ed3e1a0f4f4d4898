"""One suite over every way to ask: JSON, binary tensor data, gRPC with raw and with typed contents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tests.support import onnx_models
from tests.support.serving_process import ServingProcess, serving
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc
from tiercel.serving.dataplane import EXTENSIONS
from tiercel.serving.errors import (
    ArtefactRefusedError,
    DeadlineExceededError,
    InferenceFailedError,
    InvalidRequestError,
    NotFoundError,
    ServingError,
)
from tiercel.serving.tensors import DATA_TYPES, DataType, decode_raw, encode_raw

Array = npt.NDArray[Any]
TIMEOUT = 60.0
NUMERIC = [kind for kind in DATA_TYPES if not kind.is_bytes]
ONNX_KINDS = {
    "BF16": TensorProto.BFLOAT16,
    "BOOL": TensorProto.BOOL,
    "BYTES": TensorProto.STRING,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    **{f"{sign}INT{bits}": getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)},
}


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

    def is_a(self, error: type[ServingError]) -> bool:
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
FLOAT, LONG, STRING, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL


def f32(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=np.int64), dtype=np.float32).reshape(shape)


# Models of every kind of shape, each with the inputs that it is asked with.
ZOO: dict[str, tuple[bytes, list[dict[str, Array]]]] = {
    "scalar": (
        onnx_models.model([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, [])}, {"y": (FLOAT, [])}),
        [{"x": np.array(2.5, np.float32)}],
    ),
    "fixed": (onnx_models.identity(FLOAT, (2, 3)), [{"x": f32(2, 3)}]),
    "everything_free": (onnx_models.identity(LONG, ("a", "b", "c")), [{"x": np.ones((2, 0, 3), np.int64)}]),
    "no_inputs": (
        onnx_models.model(
            [helper.make_node("Identity", ["c"], ["y"])], {}, {"y": (FLOAT, [3])}, {"c": np.ones(3, np.float32)}
        ),
        [{}],
    ),
    "over_all_rows": (
        onnx_models.model(
            [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": (FLOAT, ["n", 3])}, {"y": (FLOAT, [])}
        ),
        [{"x": f32(4, 3)}, {"x": f32(0, 3)}],
    ),
    "rows_come_out_as_they_will": (
        onnx_models.model([helper.make_node("NonZero", ["x"], ["y"])], {"x": (FLOAT, ["n"])}, {"y": (LONG, [1, "k"])}),
        [{"x": np.array([0, 1, 0, 2], np.float32)}, {"x": np.zeros(3, np.float32)}, {"x": f32(0)}],
    ),
    "two_free_axes": (
        onnx_models.model(
            [helper.make_node("MatMul", ["a", "b"], ["y"])],
            {"a": (FLOAT, ["n", "k"]), "b": (FLOAT, ["k", "m"])},
            {"y": (FLOAT, ["n", "m"])},
        ),
        [{"a": f32(2, 3), "b": f32(3, 4)}, {"a": f32(1, 2), "b": f32(2, 1)}, {"a": f32(0, 3), "b": f32(3, 4)}],
    ),
    "words_and_numbers": (
        onnx_models.model(
            [
                helper.make_node("StringConcat", ["w", "w"], ["twice"]),
                helper.make_node("Greater", ["x", "zero"], ["positive"]),
            ],
            {"w": (STRING, ["n", 2]), "x": (FLOAT, ["n"])},
            {"twice": (STRING, ["n", 2]), "positive": (BOOL, ["n"])},
            {"zero": np.array(0, np.float32)},
        ),
        [
            {"w": np.array([["a", "é"], ["", "日"]], np.object_), "x": np.array([1, -1], np.float32)},
            {"w": np.empty((0, 2), np.object_), "x": f32(0)},
        ],
    ),
    "a_word": (onnx_models.identity(STRING, ()), [{"x": np.array("é", np.object_)}]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    root = tmp_path_factory.mktemp("serving")
    repository = root / "models"
    for kind, onnx_kind in ONNX_KINDS.items():
        onnx_models.put(repository, f"identity_{kind}", 1, onnx_models.identity(onnx_kind, ["n", "m"]))
    onnx_models.put(repository, "plus", 3, onnx_models.plus(3.0))
    onnx_models.put(repository, "two", 1, onnx_models.two_in_two_out())
    onnx_models.put(repository, "gather", 1, onnx_models.gather())
    onnx_models.put(repository, "loop", 1, onnx_models.counting_loop())
    onnx_models.put(repository, "bad", 1, onnx_models.with_custom_operator())
    for name, (content, _) in ZOO.items():
        onnx_models.put(repository, name, 1, content)
    with serving(repository, root) as server:
        yield server


@pytest.fixture(params=["json", "binary", "grpc_raw", "grpc_typed"])
def client(request: pytest.FixtureRequest, server: ServingProcess) -> Iterator[Client]:
    if request.param in {"json", "binary"}:
        yield Rest(server, binary=request.param == "binary")
        return
    caller = Grpc(server, raw=request.param == "grpc_raw")
    yield caller
    caller.close()


@pytest.mark.parametrize("kind", NUMERIC, ids=lambda kind: kind.name)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 1)])
def test_every_number_type_comes_back(client: Client, kind: DataType, shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape)).reshape(shape).astype(kind.dtype)
    answer = client.infer(f"identity_{kind.name}", {"x": value}, ["y"])
    assert answer.outputs["y"].dtype == kind.dtype
    np.testing.assert_array_equal(answer.outputs["y"], value)


def test_strings_come_back(client: Client) -> None:
    value = np.array([["", "é", "a\0b"], ["\n", '"', "日本"]], np.object_)
    assert client.infer("identity_BYTES", {"x": value}, []).outputs["y"].tolist() == value.tolist()


def test_large_tensors_come_back(client: Client) -> None:
    value = np.random.default_rng(0).standard_normal((500, 300)).astype(np.float32)
    np.testing.assert_array_equal(client.infer("identity_FP32", {"x": value}, []).outputs["y"], value)


def test_several_inputs_and_outputs_and_a_scalar(client: Client) -> None:
    inputs = {"k": np.array(4), "b": np.array([1, 2], np.float32), "a": np.array([3, 4], np.float32)}
    answer = client.infer("two", inputs, ["doubled", "total"])
    assert list(answer.outputs) == ["doubled", "total"]
    assert answer.outputs["doubled"].shape == ()
    assert int(answer.outputs["doubled"]) == 8
    assert answer.outputs["total"].tolist() == [4.0, 6.0]
    assert list(client.infer("two", inputs, []).outputs) == ["total", "doubled"]


def test_answers_carry_the_version_and_may_ask_for_it(client: Client) -> None:
    inputs = {"x": np.zeros((1, 4), np.float32)}
    assert client.infer("plus", inputs, []).version == "3"
    assert client.infer("plus", inputs, [], version="3").version == "3"


@pytest.mark.parametrize(("name", "number"), [(name, i) for name, (_, asked) in ZOO.items() for i in range(len(asked))])
def test_whatever_onnx_runtime_runs_is_answered_as_it_answers(client: Client, name: str, number: int) -> None:
    content, asked = ZOO[name]
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = client.infer(name, asked[number], []).outputs
    assert list(found) == names
    for key, expected in zip(names, session.run(names, asked[number]), strict=True):
        assert (found[key].shape, found[key].dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(found[key], expected)


@pytest.mark.parametrize(
    ("model", "inputs", "more", "error", "message"),
    [
        ("nobody", {"x": f32(1, 4)}, {}, NotFoundError, "model 'nobody' is not loaded"),
        ("bad", {"x": f32(1)}, {}, NotFoundError, "model 'bad' is not loaded"),
        (
            "plus",
            {"x": f32(1, 4)},
            {"version": "2"},
            NotFoundError,
            "version 2 of model 'plus' is not loaded; version 3",
        ),
        ("plus", {"x": f32(1, 4)}, {"version": "x"}, InvalidRequestError, "version 'x' is not a number"),
        ("plus", {"z": f32(1, 4)}, {}, InvalidRequestError, "input 'z' is unknown; model 'plus' takes x"),
        ("plus", {"x": f32(1, 3)}, {}, InvalidRequestError, "input 'x': shape is [1, 3]"),
        ("plus", {"x": f32(1, 1, 4)}, {}, InvalidRequestError, "input 'x': shape is [1, 1, 4]"),
        ("plus", {"x": np.zeros((1, 4), np.int32)}, {}, InvalidRequestError, "input 'x': datatype is INT32"),
        ("two", {"a": f32(1), "b": f32(1)}, {}, InvalidRequestError, "input 'k' of model 'two' is missing"),
        ("plus", {"x": f32(1, 4)}, {"outputs": ["z"]}, InvalidRequestError, "output 'z' is unknown"),
        ("gather", {"i": np.array([7])}, {}, InvalidRequestError, "the model does not take these inputs"),
        ("two", {"a": f32(2), "b": f32(3), "k": np.array(1)}, {}, InferenceFailedError, "the model failed"),
        ("loop", {"k": np.array(10**9)}, {"timeout": 50_000}, DeadlineExceededError, "within 0.05 seconds"),
        ("plus", {"x": f32(1, 4)}, {"timeout": -1}, InvalidRequestError, "parameter timeout must be"),
    ],
)
def test_the_same_errors_everywhere(
    client: Client,
    model: str,
    inputs: dict[str, Array],
    more: dict[str, Any],
    error: type[ServingError],
    message: str,
) -> None:
    more = dict(more)
    outputs = more.pop("outputs", [])
    with pytest.raises(RefusedError) as caught:
        client.infer(model, inputs, outputs, **more)
    assert caught.value.is_a(error), caught.value
    assert message in caught.value.message


def test_metadata(client: Client) -> None:
    assert client.metadata("two") == client.metadata("two", "1")
    assert client.metadata("two") == {
        "name": "two",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1]},
            {"name": "b", "datatype": "FP32", "shape": [-1]},
            {"name": "k", "datatype": "INT64", "shape": []},
        ],
        "outputs": [
            {"name": "total", "datatype": "FP32", "shape": [-1]},
            {"name": "doubled", "datatype": "INT64", "shape": []},
        ],
    }
    with pytest.raises(RefusedError) as caught:
        client.metadata("two", "2")
    assert caught.value.is_a(NotFoundError)


def test_readiness(client: Client) -> None:
    assert [client.ready("two"), client.ready("two", "1"), client.ready("two", "2"), client.ready("bad")] == [
        True,
        True,
        False,
        False,
    ]


def test_the_server_says_what_it_is(client: Client) -> None:
    about = client.server()
    assert about["name"] == "tiercel"
    assert about["extensions"] == list(EXTENSIONS)


def test_the_index(client: Client) -> None:
    lines = {line["name"]: line for line in client.index()}
    assert lines["plus"] == {"name": "plus", "version": "3", "state": "READY", "reason": ""}
    assert lines["bad"]["state"] == "UNAVAILABLE"
    assert "evil.example" in lines["bad"]["reason"]
    assert "bad" not in {line["name"] for line in client.index(only_ready=True)}


def test_unload_and_load(client: Client) -> None:
    client.load("identity_BOOL")
    client.unload("identity_BOOL")
    assert not client.ready("identity_BOOL")
    client.load("identity_BOOL")
    assert client.ready("identity_BOOL")


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("nobody", NotFoundError, "model 'nobody' has no version on disk"),
        ("..", InvalidRequestError, "model name '..' is impossible"),
        ("bad", ArtefactRefusedError, "version 1 of model 'bad' was refused"),
    ],
)
def test_loads_that_cannot_be(client: Client, model: str, error: type[ServingError], message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        client.load(model)
    assert caught.value.is_a(error), caught.value
    assert message in caught.value.message


def test_unloading_what_was_never_loaded(client: Client) -> None:
    with pytest.raises(RefusedError) as caught:
        client.unload("nobody")
    assert caught.value.is_a(NotFoundError)


def test_the_repository_was_not_changed(server: ServingProcess) -> None:
    folder: Path = server.repository / "plus" / "3"
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]
