from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from testing import onnx_models
from testing.serving_process import ServingProcess, serving, wait_for
from testing.until import until

CONNECTIONS = 4
SWAPS = 10
X = np.zeros((1, 4), np.float32)
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]}).encode()
REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServingProcess]:
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1.0))
    with serving(tmp_path / "models", tmp_path) as server:
        yield server


class Load:
    """Requests without a pause on one connection, each answer checked."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self.versions: list[int] = []
        self.stop = False

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        try:
            while not self.stop:
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), head
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                answer = json.loads(await reader.readexactly(length))
                version = int(answer["model_version"])
                assert answer["outputs"][0]["data"] == [float(version)] * 4, "the answer is of another version"
                self.versions.append(version)
        finally:
            writer.close()


def both_new(loads: list[Load], before: list[int], version: int) -> bool:
    """Whether each connection got two answers since ``before``, of which the second was asked after the load."""
    if any(len(load.versions) < count + 2 for load, count in zip(loads, before, strict=True)):
        return False
    assert all(load.versions[-1] == version for load in loads), "after a load all answers are the new version's"
    return True


async def test_ten_swaps_under_load_fail_no_request(server: ServingProcess) -> None:
    loads = [Load(server.http) for _ in range(CONNECTIONS)]
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        for load in loads:
            group.create_task(load.run())
        await until(lambda: all(load.versions for load in loads))
        for version in range(2, SWAPS + 2):
            reference = {"input_x": X, "output_y": X + version}
            onnx_models.put(server.repository, "m", version, onnx_models.plus(version), reference)
            reply = await asyncio.to_thread(server.load, "m")
            assert (reply.status, reply.content["version"]) == (200, str(version))
            await until(partial(both_new, loads, [len(load.versions) for load in loads], version))
        for load in loads:
            load.stop = True
    for load in loads:
        assert load.versions == sorted(load.versions), "a version never goes back"
        assert set(load.versions) == set(range(1, SWAPS + 2))
    states = server.index()
    assert states["m", str(SWAPS + 1)] == ("READY", "")
    assert [version for (_, version), (state, _) in states.items() if state == "READY"] == [str(SWAPS + 1)]


BAD = {
    "truncated": (onnx_models.plus(2.0)[:-30], None, "not ONNX|not valid ONNX|does not load"),
    "external data": (onnx_models.with_external_data(), None, "outside of the file"),
    "custom operator": (onnx_models.with_custom_operator(), None, "not a standard one"),
    "wrong reference": (onnx_models.plus(2.0), {"input_x": X, "output_y": X}, "differs from its reference"),
    "not ONNX": (b"#!/bin/sh\nreboot\n", None, "not ONNX"),
    "empty": (b"", None, "a plain file of 1 to"),
}


def test_bad_artefacts_leave_the_old_version_serving_and_can_be_replaced(server: ServingProcess) -> None:
    for version, (name, (content, reference, reason)) in enumerate(BAD.items(), start=2):
        onnx_models.put(server.repository, "m", version, content, reference)
        reply = server.load("m")
        assert reply.status == 422, name
        state, why = server.index()["m", str(version)]
        assert state == "UNAVAILABLE", name
        assert why in reply.error
        assert any(part in why for part in reason.split("|")), (name, why)
        assert server.live_version("m") == "1", name
    good = len(BAD) + 2
    onnx_models.put(server.repository, "m", good, onnx_models.plus(good))
    assert server.load("m").content["version"] == str(good)
    again = server.load("m")
    assert (again.status, again.content["version"]) == (200, str(good))


def test_a_restart_loads_the_newest_good_version(tmp_path: Path) -> None:
    for version in (1, 2):
        onnx_models.put(tmp_path / "models", "m", version, onnx_models.plus(version))
    onnx_models.put(tmp_path / "models", "m", 3, onnx_models.with_external_data())
    for _ in range(2):
        with serving(tmp_path / "models", tmp_path) as server:
            assert server.live_version("m") == "2"
            assert "outside of the file" in server.index()["m", "3"][1]


def test_a_verifier_that_dies_costs_one_load_and_no_request(server: ServingProcess) -> None:
    steps = np.array(2_000_000_000)
    onnx_models.put(server.repository, "endless", 1, onnx_models.counting_loop(), {"input_k": steps, "output_y": steps})
    verifier = server.verifier()

    def reads() -> bool:
        return len(verifier.children(recursive=True)) > 1  # one is always there: it forks those that read

    wait_for(lambda: not reads(), "the end of the first check")

    async def scenario() -> None:
        load = asyncio.ensure_future(asyncio.to_thread(server.load, "endless"))
        await asyncio.to_thread(wait_for, reads, "the check to begin")
        verifier.kill()
        reply = await load
        assert (reply.status, "the verifier died" in reply.error) == (422, True)

    asyncio.run(scenario())
    assert server.verifier().pid != verifier.pid
    onnx_models.put(server.repository, "m", 2, onnx_models.plus(2.0))
    assert server.load("m").content["version"] == "2"
    assert server.index()["endless", "1"][0] == "UNAVAILABLE"


def test_a_check_that_does_not_end_holds_up_nothing(tmp_path: Path) -> None:
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1.0))
    with serving(tmp_path / "models", tmp_path, {"verify_timeout": 1}) as server:
        steps = np.array(2_000_000_000)
        reference = {"input_k": steps, "output_y": steps}
        onnx_models.put(server.repository, "endless", 1, onnx_models.counting_loop(), reference)
        reply = server.load("endless")
        assert (reply.status, "longer than 1 seconds" in reply.error) == (422, True)
        assert server.live_version("m") == "1"


def test_swapping_a_large_model_again_and_again_does_not_grow_the_server(server: ServingProcess) -> None:
    layers = (1024, 2048, 1024)  # 16 MiB
    held: list[int] = []
    for version in range(1, 6):
        onnx_models.put(server.repository, "large", version, onnx_models.mlp(layers, seed=version))
        assert server.load("large").status == 200
        wait_for(
            lambda: "UNLOADING" not in {state for state, _ in server.index().values()}, "the old version to be released"
        )
        held.append(psutil.Process(server.process.pid).memory_full_info().uss)
    assert held[-1] < held[1] + 24 * 1024**2, held
