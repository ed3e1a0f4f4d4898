"""Any node's server is asked for any endpoint: it answers, or hands the request on to one that can."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from testing import onnx_models
from testing.fault_proxy import Fault, FaultProxy, fault_proxy
from testing.free_ports import free_port
from testing.routes import clear, lead
from testing.serving_process import Reply, ServingProcess, serving, wait_for

INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}
BODY = {"inputs": [INPUT]}
INFER = "/v2/models/m/infer"
CALLERS = 4


@dataclass(frozen=True)
class Nodes:
    """A server without models that is asked, and two that have one; the second behind a proxy."""

    near: ServingProcess
    far: ServingProcess
    proxy: FaultProxy
    folder: Path

    def lead_to(self, *backends: tuple[str, str]) -> None:
        """Tell the near one who answers for ``m``, and wait until it knows."""
        routes = {"m": tuple(clear(*each) for each in backends)}
        lead(self.near, self.folder / "near" / "routes.json", "near", routes)

    def ask(
        self, body: object = None, headers: dict[str, str] | None = None, server: ServingProcess | None = None
    ) -> Reply:
        return (server or self.near).request("POST", INFER, body or BODY, headers)

    @contextlib.contextmanager
    def asked_on(self) -> Iterator[list[int]]:
        """Several callers ask the near one for ``m`` without a pause; what all of them were answered until now."""
        statuses: list[int] = []
        stop = threading.Event()

        def ask_on() -> None:
            connection = http.client.HTTPConnection(self.near.http, timeout=90)
            with contextlib.closing(connection):
                while not stop.is_set():
                    connection.request("POST", INFER, json.dumps(BODY))
                    answer = connection.getresponse()
                    answer.read()
                    statuses.append(answer.status)

        with ThreadPoolExecutor(CALLERS) as pool:
            callers = [pool.submit(ask_on) for _ in range(CALLERS)]
            try:
                wait_for(lambda: statuses.count(200) > 50, "requests to be under way")
                yield statuses
            finally:
                stop.set()
        for caller in callers:
            caller.result()

    def outcomes(self) -> dict[str, int]:
        lines = self.near.request("GET", "/metrics").body.decode().splitlines()
        found = [line for line in lines if line.startswith("tiercel_handed_on_total{")]
        return {line.split('"')[1]: int(float(line.rpartition(" ")[2])) for line in found}


def binary_head(rows: int, size: int) -> bytes:
    """The JSON before a body that is binary, as the answer is to be."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 4], "parameters": {"binary_data_size": size}}
    return json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()


def folder_of(tmp_path: Path, name: str, *models: str) -> Path:
    folder = tmp_path / name
    (folder / "models").mkdir(parents=True)
    for model in models:
        onnx_models.put(folder / "models", model, 1, onnx_models.plus(1))
    return folder


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    tmp_path = tmp_path_factory.mktemp("nodes")
    near, far = folder_of(tmp_path, "near"), folder_of(tmp_path, "far", "m")
    settings = {"routes_file": near / "routes.json", "request_timeout": 2, "max_peer_requests": 8}
    with (
        serving(near / "models", near, settings) as one,
        serving(far / "models", far, {"routes_file": far / "routes.json"}) as other,
        fault_proxy(other.http) as proxy,
    ):
        yield Nodes(one, other, proxy, tmp_path)


@pytest.fixture(autouse=True)
def no_fault(nodes: Nodes) -> None:
    nodes.proxy.fault = Fault.NONE
    nodes.lead_to(("far", nodes.far.http))


def test_what_is_not_here_is_answered_as_it_would_be_there(nodes: Nodes) -> None:
    here, there = nodes.ask(), nodes.ask(server=nodes.far)
    assert (here.status, here.content) == (200, there.content)
    for path in ("/v2/models/m", "/v2/models/m/ready", "/v2/models/m/versions/1", "/v2/models/m/versions/7"):
        here, there = nodes.near.request("GET", path), nodes.far.request("GET", path)
        assert (here.status, here.content) == (there.status, there.content), path
    wrong = nodes.ask({"inputs": []}), nodes.ask({"inputs": []}, server=nodes.far)
    assert (wrong[0].status, wrong[0].error) == (wrong[1].status, wrong[1].error)
    assert wrong[0].status == 400
    assert nodes.near.request("POST", "/v2/models/nobody/infer", BODY).status == 404


def test_binary_bodies_go_both_ways_untouched(nodes: Nodes) -> None:
    data = np.arange(4, dtype=np.float32)
    head = binary_head(1, 16)
    answer = nodes.ask(head + data.tobytes(), {"Inference-Header-Content-Length": str(len(head))})
    assert answer.status == 200
    length = int(answer.headers["inference-header-content-length"])
    assert np.array_equal(np.frombuffer(answer.body[length:], np.float32), data + 1)
    packed = nodes.ask(None, {"Accept-Encoding": "gzip"})
    assert packed.status == 200


def test_a_second_hop_is_refused_and_loops_end(nodes: Nodes) -> None:
    refused = nodes.ask(headers={"tiercel-hops": "1"})
    assert (refused.status, refused.headers["tiercel-not-here"]) == (404, "1")
    assert "handed on to it already" in refused.error
    # Each says that the other one has it.
    lead(nodes.near, nodes.folder / "near" / "routes.json", "near", {"gone": (clear("far", nodes.far.http),)})
    lead(nodes.far, nodes.folder / "far" / "routes.json", "far", {"gone": (clear("near", nodes.near.http),)})
    looped = nodes.near.request("POST", "/v2/models/gone/infer", BODY)
    assert (looped.status, looped.headers["retry-after"]) == (503, "1")
    assert "does not have the model any more" in looped.error


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.STALL])
def test_another_one_is_asked_where_nothing_came_back(nodes: Nodes, fault: Fault) -> None:
    """A refused connection for certain; one that ends before the first byte, or says nothing, perhaps."""
    nodes.lead_to(("dead", f"127.0.0.1:{free_port()}"), ("far", nodes.far.http))
    assert [nodes.ask().status for _ in range(10)] == [200] * 10
    nodes.lead_to(("proxied", nodes.proxy.address), ("far", nodes.far.http))
    nodes.proxy.fault = fault
    before = nodes.outcomes()
    statuses = [nodes.ask().status for _ in range(20)]  # each time either of the two comes first, by chance
    outcome = "repeated" if fault is Fault.RESET else "silent"
    assert statuses == [200] * 20
    assert nodes.outcomes()[outcome] > before.get(outcome, 0)


@pytest.mark.parametrize(
    ("fault", "status", "word"),
    [
        (Fault.STALL, 504, "in time"),
        (Fault.DRIP, 504, "in time"),
        (Fault.RESET, 503, "cannot be asked now"),
        (Fault.RESET_ANSWER, 503, "was lost while it answered"),
        (Fault.GARBAGE, 503, "not well-formed"),
        (Fault.ENDLESS, 503, "not well-formed|headers are over"),
    ],
)
def test_a_broken_network_or_peer_costs_its_own_requests_only(
    nodes: Nodes, fault: Fault, status: int, word: str
) -> None:
    nodes.lead_to(("proxied", nodes.proxy.address))
    assert nodes.ask().status == 200
    nodes.proxy.fault = fault
    began = time.monotonic()
    answer = nodes.ask()
    assert answer.status == status, answer.body
    assert any(each in answer.error for each in word.split("|")), answer.error
    assert time.monotonic() - began < 30.0
    nodes.proxy.fault = Fault.NONE
    assert nodes.ask().status == 200
    assert nodes.near.request("GET", "/v2/health/live").status == 200


def test_what_is_under_way_to_a_peer_is_bounded_and_more_is_told_to_come_again(nodes: Nodes) -> None:
    nodes.lead_to(("proxied", nodes.proxy.address))
    nodes.proxy.fault = Fault.STALL
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: nodes.ask(), range(40)))
    counted = {status: sum(1 for each in answers if each.status == status) for status in (503, 504)}
    assert counted[503] + counted[504] == 40
    assert min(counted.values()) >= 8
    assert all(each.headers["retry-after"] == "1" for each in answers if each.status == 503)
    nodes.proxy.fault = Fault.NONE
    assert nodes.ask().status == 200


def test_a_caller_that_goes_away_takes_its_request_along(nodes: Nodes) -> None:
    nodes.lead_to(("proxied", nodes.proxy.address))
    nodes.proxy.fault = Fault.STALL
    before = nodes.outcomes()["given_up"]
    host, _, port = nodes.near.http.rpartition(":")
    body = json.dumps(BODY).encode()
    with socket.create_connection((host, int(port))) as caller:
        head = f"POST {INFER} HTTP/1.1\r\nHost: x.localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        caller.sendall(head.encode() + body)
        time.sleep(0.2)
    wait_for(lambda: nodes.outcomes()["given_up"] == before + 1, "the request to be given up", 2.0)


def test_a_body_at_the_limit_is_handed_on(nodes: Nodes) -> None:
    rows = 100_000
    data = np.zeros((rows, 4), np.float32)
    head = binary_head(rows, data.nbytes)
    answer = nodes.ask(head + data.tobytes(), {"Inference-Header-Content-Length": str(len(head))})
    assert answer.status == 200
    assert len(answer.body) > data.nbytes


@pytest.mark.parametrize("content", [b"", b"{", b"null", b'{"node_id": 1}', b"\xff" * 100, b"[" * 100_000])
def test_a_damaged_table_changes_nothing(nodes: Nodes, content: bytes) -> None:
    file = nodes.folder / "near" / "routes.json"
    file.write_bytes(content)
    time.sleep(0.3)
    assert nodes.ask().status == 200
    file.unlink()
    time.sleep(0.3)
    assert nodes.ask().status == 200


def test_a_model_that_was_just_unloaded_is_handed_on(nodes: Nodes) -> None:
    onnx_models.put(nodes.near.repository, "m", 1, onnx_models.plus(1))
    assert nodes.near.load("m").status == 200
    with nodes.asked_on() as statuses:
        handed_on = nodes.outcomes()["answered"]
        assert nodes.near.request("POST", "/v2/repository/models/m/unload").status == 200
        wait_for(lambda: nodes.outcomes()["answered"] > handed_on + 50, "requests to be handed on")
    assert set(statuses) == {200}


def test_a_killed_peer_costs_no_more_than_what_was_in_flight_there(nodes: Nodes, tmp_path: Path) -> None:
    doomed = folder_of(tmp_path, "doomed", "m")
    with serving(doomed / "models", doomed) as victim:
        nodes.lead_to(("victim", victim.http), ("far", nodes.far.http))
        with nodes.asked_on() as statuses:
            os.kill(victim.process.pid, signal.SIGKILL)
            victim.process.wait()
            before = statuses.count(200)
            wait_for(lambda: statuses.count(200) > before + 50, "requests to go on")
    failures = [status for status in statuses if status != 200]
    assert len(failures) <= CALLERS, failures


def test_what_would_wait_long_here_is_answered_by_a_copy_elsewhere_and_here_if_that_is_gone(tmp_path: Path) -> None:
    """Each of the two has the model, and one thread."""
    body = {"inputs": [{"name": "k", "datatype": "INT64", "shape": [], "data": [5_000]}]}
    one, other = folder_of(tmp_path, "one"), folder_of(tmp_path, "other")
    for folder in (one, other):
        onnx_models.put(folder / "models", "loop", 1, onnx_models.counting_loop())
    settings = {"routes_file": one / "routes.json", "inference_threads": 1}
    with serving(one / "models", one, settings) as near, contextlib.ExitStack() as stack:
        far = stack.enter_context(serving(other / "models", other, {"inference_threads": 1}))

        def ask_all() -> list[int]:
            with ThreadPoolExecutor(8) as pool:
                return [
                    reply.status
                    for reply in pool.map(lambda _: near.request("POST", "/v2/models/loop/infer", body), range(24))
                ]

        def answered_elsewhere() -> float:
            lines = near.request("GET", "/metrics").body.decode().splitlines()
            (line,) = [line for line in lines if line.startswith('tiercel_handed_on_total{outcome="answered"}')]
            return float(line.rpartition(" ")[2])

        assert ask_all() == [200] * 24
        assert answered_elsewhere() == 0, "nobody else is known to have it"
        lead(near, one / "routes.json", "one", {"loop": (clear("other", far.http),)})
        assert ask_all() == [200] * 24
        assert 0 < answered_elsewhere() < 24
        stack.close()
        assert ask_all() == [200] * 24
