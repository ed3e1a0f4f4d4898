"""What one model takes is nobody else's loss: real servers, models that ask for more memory than there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testing import onnx_models
from testing.serving_process import Reply, ServingProcess, serving

MEBIBYTE = 1024**2
RUN_BYTES = 256 * MEBIBYTE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    folder = tmp_path_factory.mktemp("memory")
    repository = folder / "models"
    onnx_models.put(repository, "good", 1, onnx_models.plus(1.0))
    onnx_models.put(repository, "greedy", 1, onnx_models.as_large_as_asked())
    onnx_models.put(repository, "vast", 1, onnx_models.large_by_itself(400 * MEBIBYTE))
    settings = {"max_run_bytes": RUN_BYTES, "max_answer_bytes": 8 * MEBIBYTE, "max_reference_bytes": MEBIBYTE}
    with serving(repository, folder, settings) as process:
        yield process


def ask_for(server: ServingProcess, elements: int, *, binary: bool = True) -> Reply:
    inputs = [{"name": "x", "datatype": "INT64", "shape": [1], "data": [elements]}]
    outputs = [{"name": "y", "parameters": {"binary_data": binary}}]
    return server.request("POST", "/v2/models/greedy/infer", {"inputs": inputs, "outputs": outputs})


def good_answers(server: ServingProcess) -> bool:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 1, 2, 3]}]
    reply = server.request("POST", "/v2/models/good/infer", {"inputs": inputs})
    return reply.status == 200 and reply.content["outputs"][0]["data"] == [1, 2, 3, 4]


@pytest.mark.parametrize("elements", [100 * MEBIBYTE, 10**12])
def test_one_request_that_wants_all_memory_is_refused_and_other_endpoints_go_on(
    server: ServingProcess, elements: int
) -> None:
    for _ in range(3):
        reply = ask_for(server, elements)
        assert reply.status == 413
        assert "takes more memory than one model may have here" in reply.error
    assert good_answers(server)
    assert ask_for(server, 1000).status == 200
    assert server.process.poll() is None


def test_an_answer_that_is_too_large_is_refused_before_it_is_written(server: ServingProcess) -> None:
    reply = ask_for(server, 3 * MEBIBYTE)
    assert reply.status == 413
    assert f"{12 * MEBIBYTE} bytes of outputs; {8 * MEBIBYTE} are possible" in reply.error
    assert ask_for(server, 2 * MEBIBYTE).status == 200
    assert good_answers(server)


def test_a_model_that_takes_more_than_it_may_when_loaded_is_refused(server: ServingProcess) -> None:
    state, reason = server.index()["vast", "1"]
    assert state == "UNAVAILABLE"
    assert "memory" in reason


def test_where_the_server_itself_has_no_more_only_the_run_fails(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    onnx_models.put(repository, "good", 1, onnx_models.plus(1.0))
    onnx_models.put(repository, "greedy", 1, onnx_models.as_large_as_asked())
    settings = {"max_run_bytes": 8192 * MEBIBYTE, "max_memory_bytes": 1024 * MEBIBYTE}
    with serving(repository, tmp_path, settings) as server:
        reply = ask_for(server, 512 * MEBIBYTE)
        assert reply.status == 413
        assert "takes more memory than one model may have here" in reply.error
        assert good_answers(server)
