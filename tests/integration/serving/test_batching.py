"""Batches in a real server under real clients: every answer is the one ONNX Runtime gives for that request alone."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from testing import onnx_models
from testing.serving_process import ServingProcess, serving, wait_for

REQUESTS = 25
CLIENTS = 8
MODELS = {
    "mlp": onnx_models.mlp((8, 16, 4)),
    "wide": onnx_models.mlp((64, 512, 512, 10), seed=1),
    "any": onnx_models.identity(shape=("n", "m")),
    "centred": onnx_models.centred(),
    "gather": onnx_models.gather(),
}


@pytest.fixture(params=["0", "1e-4"], ids=["workers", "event loop"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServingProcess]:
    repository = tmp_path / "models"
    for name, content in MODELS.items():
        onnx_models.put(repository, name, 1, content)
    with serving(repository, tmp_path, {"inline_budget": request.param}) as running:
        yield running


def question(random: np.random.Generator) -> tuple[str, str, np.ndarray[Any, Any]]:
    """A model, its input's name and a value, of a shape that varies."""
    model = str(random.choice(list(MODELS)))
    rows = int(random.integers(0, 4)) if model != "centred" else int(random.integers(1, 4))
    if model == "gather":
        return model, "i", random.integers(-3, 4, rows)  # 3 is out of bounds
    columns = {"mlp": 8, "wide": 64, "centred": 4, "any": int(random.integers(0, 3))}[model]
    return model, "x", random.standard_normal((rows, columns)).astype(np.float32)


class Client(threading.Thread):
    """Asks one thing after the other and compares what it gets."""

    def __init__(self, server: ServingProcess, sessions: dict[str, ort.InferenceSession], seed: int) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection(server.http, timeout=60)
        self._sessions = sessions
        self._random = np.random.default_rng(seed)
        self.wrong: list[str] = []

    def run(self) -> None:
        for _ in range(REQUESTS):
            self._ask(*question(self._random))
        self._connection.close()

    def _ask(self, model: str, name: str, value: np.ndarray[Any, Any]) -> None:
        kind = "INT64" if value.dtype == np.int64 else "FP32"
        tensor = {"name": name, "datatype": kind, "shape": list(value.shape), "data": value.ravel().tolist()}
        self._connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}))
        answer = self._connection.getresponse()
        content = json.loads(answer.read())
        try:
            (expected,) = self._sessions[model].run(None, {name: value})
        except Exception:  # ONNX Runtime's errors have no common base
            if answer.status != 400 or "out of data bounds" not in content["error"]:
                self.wrong.append(f"{model}: {answer.status} {content}")
            return
        if answer.status != 200:
            self.wrong.append(f"{model}: {answer.status} {content}")
            return
        (output,) = content["outputs"]
        found = np.array(output["data"], expected.dtype).reshape(output["shape"])
        if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4, atol=1e-5):
            self.wrong.append(f"{model}: {found} instead of {expected}")


def test_clients_of_mixed_models_and_shapes_get_what_their_request_gives_alone(server: ServingProcess) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    sessions = {name: ort.InferenceSession(content, options) for name, content in MODELS.items()}
    clients = [Client(server, sessions, seed) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert [line for client in clients for line in client.wrong] == []
    lines = [server.request("GET", f"/v2/models/{name}/stats").content["model_stats"][0] for name in MODELS]
    successes = sum(line["inference_stats"]["success"]["count"] for line in lines)
    failures = sum(line["inference_stats"]["fail"]["count"] for line in lines)
    assert successes + failures == CLIENTS * REQUESTS


def body(steps: int) -> str:
    return json.dumps({"inputs": [{"name": "k", "datatype": "INT64", "shape": [], "data": [steps]}]})


def status_of(server: ServingProcess, steps: int) -> int:
    return server.request("POST", "/v2/models/loop/infer", body(steps).encode()).status


def test_beyond_what_may_wait_requests_are_refused_at_once_until_others_leave(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    onnx_models.put(repository, "loop", 1, onnx_models.counting_loop())
    with serving(repository, tmp_path, {"max_pending": 3, "inference_threads": 1}) as server:
        callers = [http.client.HTTPConnection(server.http, timeout=60) for _ in range(3)]
        for caller in callers:
            caller.request("POST", "/v2/models/loop/infer", body(500_000_000))  # minutes
        wait_for(lambda: status_of(server, 1) == 503, "the queue to be full")
        refused = server.request("POST", "/v2/models/loop/infer", b"this is not even read")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        for caller in callers:
            caller.close()
        wait_for(lambda: status_of(server, 1) == 200, "room, since nobody waits for the answers any more")
