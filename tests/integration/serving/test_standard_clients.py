from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from onnx import TensorProto

from testing import onnx_models, triton_calls
from testing.serving_process import ServingProcess, serving

PLUS = [[3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    root = tmp_path_factory.mktemp("serving")
    onnx_models.put(root / "models", "plus", 3, onnx_models.plus(3.0))
    (root / "models" / "plus" / "labels.txt").write_text("cat\ndog\n")
    onnx_models.put(root / "models", "words", 1, onnx_models.identity(TensorProto.STRING))
    onnx_models.put(root / "models", "bad", 1, b"nonsense")
    with serving(root / "models", root) as server:
        yield server


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritonclient_gets_right_answers(server: ServingProcess, kind: str) -> None:
    address = server.http if kind == "http" else server.grpc
    program = Path(triton_calls.__file__)
    ran = subprocess.run([sys.executable, program, kind, address], capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    said: dict[str, Any] = json.loads(ran.stdout)
    assert said["live"] is said["ready"] is said["loaded"] is True
    assert said["unloaded"] is False
    assert said["model_ready"] == [True, False, False]
    assert said["server"] == "tiercel"
    assert said["metadata"]["inputs"][0]["name"] == "x"
    assert said["metadata"]["versions"] == ["3"]
    assert said["index"] == [["bad", "UNAVAILABLE"], ["plus", "READY"], ["words", "READY"]]
    assert said["infer"] == ["3", "7", PLUS]
    assert said["packed"] == [True, True]
    assert said["words"] == ["a", "é"]
    statuses = (
        ["404", "400", "422"]
        if kind == "http"
        else [f"StatusCode.{name}" for name in ("NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION")]
    )
    assert [status for status, _ in said["errors"]] == statuses
    assert "not ONNX" in said["errors"][2][1]
    if kind == "grpc":
        assert said["stream"] == [["0", [[3.0] * 4]], ["2", [[5.0] * 4]], ["error", said["errors"][0][1]]]
    if kind == "http":
        assert said["json"] == said["infer"]
    statistics = said["statistics"]
    assert int(statistics["inference_count"]) >= int(statistics["execution_count"]) >= 1
    assert int(statistics["inference_stats"]["success"]["count"]) >= 1
    assert int(statistics["batch_stats"][0]["compute_infer"]["ns"]) > 0
    assert said["all_statistics"] == ["plus", "words"]
    assert said["classes"] == [["6.000000:1:dog", "5.000000:2"], ["12.000000:0:cat", "11.000000:1:dog"]]
    config = said["config"]
    assert (config["name"], config["platform"], config["backend"]) == ("plus", "onnxruntime_onnx", "onnxruntime")
    assert config["max_batch_size"] > 0
    assert [int(size) for size in config["input"][0]["dims"]] == [4]
    assert config["output"][0]["data_type"] == "TYPE_FP32"


def test_grpc_health_and_reflection(server: ServingProcess) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "inference.GRPCInferenceService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=90)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflection.ServerReflectionInfo(iter([question]), timeout=90)
        names = {service.name for service in answer.list_services_response.service}
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= names


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_large_answer_is_packed_for_those_who_ask(server: ServingProcess, coding: str) -> None:
    values = [[0.0, 1.0, 2.0, 3.0]] * 4096
    question: dict[str, Any] = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4096, 4], "data": values}]}
    path = "/v2/models/plus/infer"
    plain = server.request("POST", path, question)
    assert not {"content-encoding", "vary"} & set(plain.headers)
    answer = server.request("POST", path, question, {"Accept-Encoding": coding})
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == (coding, "Accept-Encoding")
    assert len(answer.body) < len(plain.body) / 10
    assert (gzip if coding == "gzip" else zlib).decompress(answer.body) == plain.body
    question["outputs"] = [{"name": "y", "parameters": {"binary_data": True}}]
    binary = server.request("POST", path, question, {"Accept-Encoding": coding})
    body = (gzip if coding == "gzip" else zlib).decompress(binary.body)
    head = json.loads(body[: int(binary.headers["inference-header-content-length"])])
    assert head["outputs"][0]["parameters"]["binary_data_size"] == 4 * 4 * 4096
    small = server.request("GET", "/v2", headers={"Accept-Encoding": coding})
    assert "content-encoding" not in small.headers


def test_bad_http_from_the_network(server: ServingProcess) -> None:
    body = b'{"inputs": []}'
    path = "/v2/models/plus/infer"
    brotli = server.request("POST", path, body, {"Content-Encoding": "br"})
    assert (brotli.status, brotli.headers["accept-encoding"]) == (415, "gzip, deflate, identity")
    assert server.request("POST", path, body, {"Content-Encoding": "gzip"}).status == 400
    method = server.request("GET", path)
    assert (method.status, method.headers["allow"]) == (405, "POST")
    assert server.request("GET", "/v2/nothing").status == 404
    assert server.request("POST", path, b"{").status == 400
    assert server.request("POST", "/v2/models/nobody/infer", b"{").status == 404
    page = server.request("POST", "/v2/repository/models/plus/unload", b"", {"Origin": "http://evil.example"})
    assert page.status == 403
    override = server.request("POST", "/v2/repository/models/plus/load", {"parameters": {"config": "{}"}})
    assert (override.status, "parameters" in override.error) == (400, True)
    assert server.live_version("plus") == "3"
