"""A real server process under callers that cut, dawdle and shout; it has to live on and answer, and keep nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import psutil

from benchmarks.fuzz.calls import grpc_case
from benchmarks.fuzz.requests import HEADER_LIMIT, get, infer_json, post, rest_case
from testing import onnx_models
from testing.serving_process import ServingProcess, serving

ROUNDS = 300
SLOW_CONNECTIONS = 50
GROWN_BYTES = 64 * 2**20
"""What a server of 60 MB may have grown by after all this: buffers and arenas, not what callers left behind."""


def run_smoke(seed: int) -> list[str]:
    """Do everything that callers should not do; returns sentences about what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        onnx_models.put(root / "models", "plus", 1, onnx_models.plus(1.0))
        with serving(root / "models", root) as server:
            return _Smoke(server, random.Random(seed)).run()


class _Smoke:
    def __init__(self, server: ServingProcess, source: random.Random) -> None:
        self._server = server
        self._source = source
        self._process = psutil.Process(server.process.pid)

    def run(self) -> list[str]:
        """Every trick, and after each a good request."""
        tricks: tuple[Callable[[], None], ...] = (
            self._cut_connections, self._slow_bodies, self._huge_headers, self._resets, self._bent_grpc,
            self._pipelines,
        )  # fmt: skip
        problems = []
        memory = self._process.memory_info().rss
        for trick in tricks:
            name = trick.__name__.strip("_").replace("_", " ")
            try:
                trick()
            except OSError as error:
                problems.append(f"{name}: {error!r}")
            if problem := self._not_well():
                problems.append(f"{name}: {problem}")
        time.sleep(0.5)  # a real server: it needs a moment to notice the connections that were cut
        open_now = [each for each in self._process.net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED]
        if len(open_now) > 5:
            problems.append(f"{len(open_now)} connections are still open")
        grown = self._process.memory_info().rss - memory
        if grown > GROWN_BYTES:
            problems.append(f"the server grew by {grown / 2**20:.0f} MiB")
        errors = [line for line in self._server.log.read_text(errors="replace").splitlines() if " ERROR " in line]
        return problems + [f"log: {line[:200]}" for line in errors[:5]]

    def _not_well(self) -> str:
        if self._server.process.poll() is not None:
            return f"the server ended with {self._server.process.returncode}"
        try:
            reply = self._server.request("POST", "/v2/models/plus/infer", infer_json())
        except OSError as error:
            return f"a good request fails: {error!r}"
        return "" if reply.status == 200 else f"a good request gets {reply.status}: {reply.body[:100]!r}"

    def _connect(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=5.0)

    def _cut_connections(self) -> None:
        for _ in range(ROUNDS):
            wire = rest_case(self._source).wire
            with self._connect(self._server.http) as caller, contextlib.suppress(ConnectionError):
                caller.sendall(wire[: self._source.randrange(len(wire) + 1)])

    def _resets(self) -> None:
        """Callers that leave with RST instead of FIN while their answer is being computed."""
        linger = b"\1\0\0\0\0\0\0\0"
        for _ in range(ROUNDS):
            with self._connect(self._server.http) as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                caller.sendall(post(b"/v2/models/plus/infer", orjson.dumps(infer_json(64))))

    def _slow_bodies(self) -> None:
        """An octet now and then on many connections; others must not notice."""
        wire = post(b"/v2/models/plus/infer", orjson.dumps(infer_json()))
        with contextlib.ExitStack() as stack:
            callers = [stack.enter_context(self._connect(self._server.http)) for _ in range(SLOW_CONNECTIONS)]
            for octet in wire[:40]:
                for caller in callers:
                    caller.sendall(bytes((octet,)))
            began = time.monotonic()
            if problem := self._not_well():
                raise OSError(problem)
            if time.monotonic() - began > 2.0:
                raise OSError("a good request waits for the slow ones")

    def _huge_headers(self) -> None:
        for size in (HEADER_LIMIT * 2, 2**20, 4 * 2**20):
            with self._connect(self._server.http) as caller:
                with contextlib.suppress(ConnectionError):
                    caller.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * size + b"\r\n\r\n")
                answer = _read(caller)
                if answer and b" 431 " not in answer[:20]:
                    raise OSError(f"huge headers get {answer[:60]!r}")

    def _pipelines(self) -> None:
        """Thousands of requests on one connection whose answers nobody takes for a while."""
        with self._connect(self._server.http) as caller:
            caller.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                caller.sendall(get(b"/v2/models/plus") * 20_000)

    def _bent_grpc(self) -> None:
        for _ in range(ROUNDS):
            with self._connect(self._server.grpc) as caller, contextlib.suppress(ConnectionError):
                caller.sendall(grpc_case(self._source).wire)


def _read(caller: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return caller.recv(4096)
    return b""
