from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testing import onnx_models
from testing.serving_process import ServingProcess, begun, command, serving, wait_for

LOOP = "/v2/models/loop/infer"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    onnx_models.put(tmp_path / "models", "loop", 1, onnx_models.counting_loop())
    return tmp_path / "models"


def run(words: list[str]) -> tuple[int, str]:
    """As users start it, with nothing imported beforehand."""
    ran = subprocess.run(words, capture_output=True, timeout=60, check=False)
    return ran.returncode, ran.stderr.decode()


def run_warm(words: list[str], folder: Path) -> tuple[int, str]:
    log = folder / "said"
    code = begun(words, log).wait(60)
    return code, log.read_text()


@pytest.mark.parametrize("which", ["http", "grpc"])
def test_a_port_in_use_is_a_sentence(tmp_path: Path, repository: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = run_warm(command(repository, tmp_path, f"--{which}-port", str(port)), tmp_path)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert f"--{which}-port" in said
    assert "Traceback" not in said
    assert not (tmp_path / "serving.json").exists()


def test_a_second_server_on_the_same_lock_is_a_sentence(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path) as server:
        code, said = run(command(repository, tmp_path))
        assert code == 2
        assert f"Another inference server (pid {server.process.pid}) holds" in said
        assert "Traceback" not in said
        assert json.loads((tmp_path / "serving.json").read_text())["pid"] == server.process.pid


def test_another_interface_needs_permission(tmp_path: Path, repository: Path) -> None:
    code, said = run_warm(command(repository, tmp_path, "--host", "0.0.0.0"), tmp_path)
    assert code == 2
    assert "TLS" in said
    assert "Traceback" not in said


@contextlib.contextmanager
def counting(server: ServingProcess, steps: int) -> Iterator[socket.socket]:
    """A connection with a request for so many steps that the server is working on."""
    body = question(steps)
    host, _, port = server.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = b"GET /v2 HTTP/1.1\r\n\r\nPOST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % (LOOP.encode(), len(body)) + body)
        assert connection.recv(65536).startswith(
            b"HTTP/1.1 200 "
        )  # of the first request; the second is handled with it
        yield connection


def question(steps: int) -> bytes:
    return json.dumps({"inputs": [{"name": "k", "datatype": "INT64", "shape": [], "data": [steps]}]}).encode()


def test_sigterm_lets_requests_finish_and_takes_everything_along(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path, {"drain_timeout": 60}) as server:
        verifier = server.verifier()
        with counting(server, 1_000_000) as connection:
            server.process.send_signal(signal.SIGTERM)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"1000000" in answer
        assert server.process.wait(30) == 0
    assert not (tmp_path / "serving.json").exists()
    wait_for(lambda: not verifier.is_running(), "the verifier to be gone")


def test_requests_that_were_sent_before_sigterm_are_answered(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path, {"drain_timeout": 60}) as server:
        host, _, port = server.http.rpartition(":")
        request = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
        body = question(3)
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60))]
            connections[0].sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connections[0].recv(65536).startswith(b"HTTP/1.1 200 ")
            server.process.send_signal(signal.SIGSTOP)  # what is sent from here on stays in the kernel
            connections += [
                stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(20)
            ]
            for connection in connections:
                connection.sendall(request % (LOOP.encode(), len(body), body))
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGCONT)
            answers = [connection.recv(65536) for connection in connections]
        assert [answer[:13] for answer in answers] == [b"HTTP/1.1 200 "] * len(connections)
        assert server.process.wait(60) == 0


def test_a_stuck_request_does_not_keep_the_server_from_leaving(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path, {"drain_timeout": 0.2}) as server, counting(server, 10**12):
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_overload_is_refused_with_the_time_to_come_back(tmp_path: Path, repository: Path) -> None:
    settings = {"max_pending": 1, "inference_threads": 1, "drain_timeout": 0.2}
    with serving(repository, tmp_path, settings) as server, counting(server, 10**12):
        reply = server.request("POST", LOOP, question(1))
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")


def test_after_kill_9_nothing_is_left_and_the_next_server_starts(tmp_path: Path, repository: Path) -> None:
    with serving(repository, tmp_path) as server:
        verifier = server.verifier()
        server.process.kill()
        server.process.wait(30)
    psutil.wait_procs([verifier], timeout=90)
    assert not verifier.is_running()
    assert (tmp_path / "serving.json").exists()  # stale, and replaced by the next server
    with serving(repository, tmp_path) as server:
        assert server.live_version("loop") == "1"
