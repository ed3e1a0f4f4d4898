"""One server for all tests here, and each way to ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing import onnx_models
from testing.onnx_zoo import put_zoo
from testing.serving_callers import Client, Grpc, Rest
from testing.serving_process import ServingProcess, serving


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    root = tmp_path_factory.mktemp("serving")
    repository = root / "models"
    put_zoo(repository)
    onnx_models.put(repository, "plus", 3, onnx_models.plus(3.0))
    onnx_models.put(repository, "two", 1, onnx_models.two_in_two_out())
    onnx_models.put(repository, "gather", 1, onnx_models.gather())
    onnx_models.put(repository, "loop", 1, onnx_models.counting_loop())
    onnx_models.put(repository, "bad", 1, onnx_models.with_custom_operator())
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
