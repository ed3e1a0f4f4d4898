from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import grpc
import numpy as np
import psutil
import pytest

from testing import onnx_models
from testing.serving_process import ServingProcess, serving, wait_for
from testing.until import until
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc
from tiercel.trainer_agent.inference_server.client import ServingClient

CONNECTIONS = 3
PAUSE_SECONDS = 0.002  # else the load computes for as long as the next process begins
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]}).encode()
REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def state_of(directory: Path) -> dict[str, str | int]:
    content: dict[str, str | int] = json.loads((directory / "serving.json").read_text())
    return content


def is_locked(directory: Path) -> bool:
    with (directory / "serving.lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def has_left(pid: int) -> bool:
    """Whether this process ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServingProcess]:
    """A server; whoever took over from it is ended too."""
    for version in (1, 2):
        onnx_models.put(tmp_path / "models", "m", version, onnx_models.plus(version))
    with serving(tmp_path / "models", tmp_path, {"drain_timeout": 3}) as server:
        try:
            yield server
        finally:
            with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
                last = psutil.Process(int(state_of(tmp_path)["pid"]))
                last.terminate()
                wait_for(lambda: has_left(last.pid), "the last server to leave")


class Client:
    """Asks again and again over REST, on a new connection whenever the server said that it closes the old one."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self.answers = 0
        self.connections = 0
        self.stop = False

    async def run(self) -> None:
        while not self.stop:
            reader, writer = await asyncio.open_connection(self._host, int(self._port))
            self.connections += 1
            try:
                while await self._ask(reader, writer):
                    pass
            finally:
                writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One question; whether to ask another on this connection."""
        writer.write(REQUEST)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200 "), head
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        assert answer["outputs"][0]["data"] == [float(answer["model_version"])] * 4
        self.answers += 1
        await asyncio.sleep(PAUSE_SECONDS)
        return b"connection: close" not in head and not self.stop


class GrpcClient:
    """Asks again and again over gRPC, on one channel."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.answers = 0
        self.stop = False

    async def run(self) -> None:
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 4])
        request = pb.ModelInferRequest(
            model_name="m", inputs=[tensor], raw_input_contents=[np.zeros(4, np.float32).tobytes()]
        )
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub = pb_grpc.GRPCInferenceServiceStub(channel)
            while not self.stop:
                await stub.ModelInfer(request)
                self.answers += 1
                await asyncio.sleep(PAUSE_SECONDS)


async def hand_over_under_load(server: ServingProcess) -> tuple[list[Client], GrpcClient]:
    clients = [Client(server.http) for _ in range(CONNECTIONS)]
    rpc = GrpcClient(server.grpc)
    everybody: list[Client | GrpcClient] = [*clients, rpc]
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        for each in everybody:
            group.create_task(each.run())
        reply = await asyncio.to_thread(server.request, "POST", "/v2/handover")
        assert reply.status == 200, reply.body
        await asyncio.to_thread(server.process.wait, 60)
        before = [each.answers for each in everybody]
        await until(lambda: all(each.answers >= count + 5 for each, count in zip(everybody, before, strict=True)))
        for each in everybody:
            each.stop = True
    return clients, rpc


def test_a_hand_over_under_load_fails_no_request(server: ServingProcess, tmp_path: Path) -> None:
    assert server.request("POST", "/v2/repository/models/m/load", {"parameters": {"version": 1}}).status == 200
    shares = {"models": {"m": {"cpu_weight": 0.5, "cpu_cap_cores": 8.0}}}
    assert server.request("POST", "/v2/shares", shares).status == 200
    clients, _ = asyncio.run(hand_over_under_load(server))
    assert server.process.returncode == 0
    assert all(client.connections == 2 for client in clients)
    state = state_of(tmp_path)
    assert (state["http"], state["grpc"]) == (server.http, server.grpc)
    assert state["pid"] != server.process.pid
    assert (tmp_path / "serving.lock").read_text().strip() == str(state["pid"])
    assert is_locked(tmp_path)
    assert server.live_version("m") == "1", "what was live stays live, also where it is not the newest"
    (usage,) = server.request("GET", "/v2/usage").content["models"]
    assert (usage["cpu_weight"], usage["cpu_cap_cores"]) == (0.5, 8.0)


def test_a_fresh_process_hands_over_in_its_turn_and_leaves_as_any_server(
    server: ServingProcess, tmp_path: Path
) -> None:
    pids = [server.process.pid]
    for _ in range(2):
        os.kill(pids[-1], signal.SIGHUP)
        pids.append(wait_for(lambda: pid if (pid := int(state_of(tmp_path)["pid"])) not in pids else None, "the next"))
        wait_for(lambda: server.request("GET", "/v2/health/ready").status == 200, "ready")
        wait_for(lambda: has_left(pids[-2]), "the one before to leave")
    onnx_models.put(server.repository, "m", 3, onnx_models.plus(3.0))
    assert server.load("m").content["version"] == "3"
    last = psutil.Process(pids[-1])
    last.terminate()
    wait_for(lambda: has_left(last.pid), "the last to leave")
    assert not (tmp_path / "serving.json").exists()
    wait_for(lambda: not is_locked(tmp_path), "the lock to be free")


def test_a_process_that_cannot_take_over_leaves_the_old_one_as_it_was(server: ServingProcess, tmp_path: Path) -> None:
    shutil.rmtree(server.repository / "m" / "2")  # live, but no longer there to be loaded
    reply = server.request("POST", "/v2/handover")
    assert reply.status == 503
    assert "version 2 of model 'm' is not on disk" in reply.error
    assert state_of(tmp_path)["pid"] == server.process.pid
    assert is_locked(tmp_path)
    assert server.live_version("m") == "2"
    onnx_models.put(server.repository, "m", 3, onnx_models.plus(3.0))
    assert server.load("m").content["version"] == "3", "loads are taken again"
    assert server.request("POST", "/v2/handover").status == 200, "and so are hand-overs"
    assert server.live_version("m") == "3"


def test_only_programs_may_ask_for_a_hand_over(server: ServingProcess) -> None:
    assert server.request("POST", "/v2/handover", headers={"Origin": "http://evil.example"}).status == 403


def test_a_trial_goes_on_in_the_process_that_follows(server: ServingProcess, tmp_path: Path) -> None:
    onnx_models.put(server.repository, "m", 3, onnx_models.plus(3.0))
    assert server.request("POST", "/v2/shares", {"models": {"m": {"objective_seconds": 5.0}}}).status == 200
    plan = {"canary_fraction": 0.5, "canary_requests": 8, "canary_seconds": 1000, "canary_compare_fraction": 1}
    assert server.request("POST", "/v2/repository/models/m/load", {"parameters": plan}).status == 200

    def asked() -> str:
        return str(server.request("POST", "/v2/models/m/infer", BODY).content["model_version"])

    assert {asked() for _ in range(6)} == {"2", "3"}
    assert server.request("POST", "/v2/handover").status == 200
    wait_for(lambda: has_left(server.process.pid), "the one before to leave")
    trial = server.request("GET", "/v2/models/m/canary").content["canary"]
    assert (trial["state"], trial["version"], trial["against"]) == ("RUNNING", "3", "2")
    assert (trial["new"]["answers"], trial["old"]["answers"]) == (3, 3)
    (usage,) = server.request("GET", "/v2/usage").content["models"]
    assert usage["requests"] == 0, "counters begin anew"
    assert [(window["answers"], window["in_objective"]) for window in usage["windows"]][1] == (6, 1.0)

    def ended() -> str | None:
        asked()
        state = server.request("GET", "/v2/models/m/canary").content["canary"]["state"]
        return None if state == "RUNNING" else str(state)

    assert wait_for(ended, "the trial to end") == "PROMOTED"
    assert asked() == "3"


def test_a_delivery_that_waits_for_its_trial_is_taken_up_by_the_process_that_follows(server: ServingProcess) -> None:
    said = {"canary_fraction": 0.5, "canary_requests": 8, "canary_seconds": 1000}
    lines = [f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}' for name, value in said.items()]
    (server.repository / "m" / "config.pbtxt").write_text("\n".join(lines))
    onnx_models.put(server.repository, "m", 3, onnx_models.plus(3.0))

    async def deliver() -> None:
        async with aiohttp.ClientSession() as session:
            await ServingClient(session, lambda: server.http).load("m")

    with ThreadPoolExecutor(1) as thread:
        delivery = thread.submit(lambda: asyncio.run(deliver()))
        wait_for(lambda: server.index().get(("m", "3"), ("", ""))[1].startswith("on trial"), "the trial")
        assert server.request("POST", "/v2/handover").status == 200
        wait_for(lambda: has_left(server.process.pid), "the one before to leave")

        def delivered() -> bool:
            server.request("POST", "/v2/models/m/infer", BODY)
            return delivery.done()

        wait_for(delivered, "the delivery")
        delivery.result()
    assert server.live_version("m") == "3"
