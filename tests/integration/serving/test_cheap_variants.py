"""Versions with a cheap variant in a real server, for which one of few layers stands: both come and go as one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testing import onnx_models
from testing.serving_process import Reply, ServingProcess, serving, wait_for

LARGE, MIDDLE, SMALL = (onnx_models.mlp((64, *hidden, 10)) for hidden in ((512, 512), (64,), ()))
OTHER = onnx_models.mlp((64, 11))


def put(repository: Path, version: int, content: bytes, **cheap: tuple[bytes, float]) -> None:
    """A version that is right in 0.9 of its answers, and its cheap variants with what they are."""
    folder = onnx_models.put(repository, "digits", version, content)
    for kind, (model, _) in cheap.items():
        (folder / f"model.{kind}.onnx").write_bytes(model)
    accuracies = {"accuracy": 0.9, **{kind: accuracy for kind, (_, accuracy) in cheap.items()}}
    (folder / "accuracy.json").write_text(json.dumps(accuracies))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    directory = tmp_path_factory.mktemp("int8")
    put(directory / "models", 1, LARGE, int8=(SMALL, 0.88), fp16=(MIDDLE, 0.89))
    with serving(directory / "models", directory) as running:
        # Nobody is to be given up because the machine is busy.
        shares = {"models": {"digits": {"objective_seconds": 20.0}}}
        assert running.request("POST", "/v2/shares", shares).status == 200
        yield running


def ask(server: ServingProcess, path: str = "", **parameters: Any) -> Reply:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0.5] * 64}
    return server.request("POST", f"/v2/models/digits{path}/infer", {"inputs": [tensor], "parameters": parameters})


def told(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply.content
    said: dict[str, Any] = reply.content.get("parameters", {})
    return said


def test_the_version_answers_while_there_is_time(server: ServingProcess) -> None:
    assert told(ask(server)) == {"variant": "fp32", "version": "1", "accuracy": 0.9}
    assert told(ask(server, minimum_accuracy=0.895))["variant"] == "fp32"
    assert ask(server, minimum_accuracy=0.95).status == 400
    content = server.request("GET", "/v2/models/digits").content
    assert (content["versions"], content["platform"]) == (["1"], "onnxruntime_onnx")
    found = {each["name"]: each["accuracy"] for each in content["parameters"]["variants"]}
    assert found == {"fp32": 0.9, "int8": 0.88, "fp16": 0.89}
    # A version that is named answers itself, and others may not be let pass by somebody who is as urgent.
    assert told(ask(server, "/versions/1")) == {"accuracy": 0.9}
    assert told(ask(server, priority=1)) == {"accuracy": 0.9}
    assert ask(server, "/versions/2").status == 404


def test_versions_flip_with_their_cheap_variants_and_nobody_fails(server: ServingProcess) -> None:
    failed: list[Reply] = []
    over = threading.Event()

    def keep_asking() -> None:
        while not over.is_set():
            reply = ask(server)
            if reply.status != 200:
                failed.append(reply)

    callers = [threading.Thread(target=keep_asking) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        put(server.repository, 2, LARGE, int8=(SMALL, 0.91), fp16=(MIDDLE, 0.95))
        assert server.load("digits").status == 200
        assert told(ask(server)) == {"variant": "fp16", "version": "2", "accuracy": 0.95}
        # What is not fit, and what is not faster here, leaves the version alone.
        for version, content, cheap in ((3, LARGE, b"hostile"), (4, SMALL, LARGE)):
            put(server.repository, version, content, int8=(cheap, 0.95), fp16=(cheap, 0.95))
            assert server.load("digits").status == 200
            assert told(ask(server)) == {"accuracy": 0.9}
        put(server.repository, 5, LARGE, int8=(OTHER, 0.95), fp16=(OTHER, 0.95))  # they give something else
        assert server.load("digits").status == 200
        assert told(ask(server)) == {"variant": "fp32", "version": "5", "accuracy": 0.9}
        back = server.request("POST", "/v2/repository/models/digits/load", {"parameters": {"version": "2"}})
        assert back.status == 200, back.content
        assert told(ask(server))["variant"] == "fp16"
        # On trial are the versions themselves; whichever answers then has no choice.
        put(server.repository, 6, LARGE, int8=(SMALL, 0.96))
        trial = {"version": "6", "canary_fraction": 0.5, "canary_requests": 20, "canary_max_latency_ratio": 1e6}
        begun = server.request("POST", "/v2/repository/models/digits/load", {"parameters": trial})
        assert begun.status == 200, begun.content
        wait_for(lambda: told(ask(server)).get("version") == "6", "version 6 to answer everything")
        assert told(ask(server)) == {"variant": "int8", "version": "6", "accuracy": 0.96}
        usage = server.request("GET", "/v2/usage").content["models"]
        (line,) = [line for line in usage if line["name"] == "digits"]
        assert line["answered_by"]["fp32"] > 0 < line["answered_by"]["int8"]
    finally:
        over.set()
        for caller in callers:
            caller.join()
    assert not failed, failed[0].content
    assert server.request("POST", "/v2/repository/models/digits/unload").status == 200
    assert ask(server).status == 404
