"""What models run on, as a real server says it. Where the installed ONNX Runtime has CUDA, it may be that."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest

from testing import onnx_models
from testing.serving_process import serving

HAS_CUDA = "CUDAExecutionProvider" in ort.get_available_providers()
pytestmark = pytest.mark.skipif(HAS_CUDA, reason="this onnxruntime has CUDA")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        onnx_models.put(tmp_path / "models", name, 1, onnx_models.mlp())
    return tmp_path / "models"


def test_models_run_on_the_cpu_where_there_is_no_cuda_and_one_line_says_why(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path, {"providers": "cuda,cpu", "accelerator_memory": 1_000_000}) as server:
        assert server.request("GET", "/v2/models/first/config").content["instance_group"][0]["kind"] == "KIND_CPU"
        metrics = server.request("GET", "/metrics").body.decode()
        assert 'tiercel_model_provider{model="first",provider="cpu",version="1"} 1.0' in metrics
        usage = server.request("GET", "/v2/usage").content["models"]
        assert [line["accelerator_seconds"] for line in usage] == [0.0, 0.0]
        assert server.log.read_text().count("Models run on cpu, not on cuda: onnxruntime") == 1


def test_without_asking_for_anything_nothing_is_said(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path) as server:
        assert server.live_version("second") == "1"
        assert "cuda" not in server.log.read_text().lower()


def test_a_model_that_may_run_on_cuda_only_is_refused_with_the_cause(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path, {"providers": "cuda"}) as server:
        answer = server.load("first")
        assert answer.status == 422
        assert "was built without CUDAExecutionProvider" in answer.error
        assert "add cpu to --providers" in answer.error
