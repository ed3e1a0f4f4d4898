"""What the inference server does on this machine, and what swaps cost it: ``python -m benchmarks.serving_smoke``.

A small MLP (64-128-10), JSON, closed loop, keep-alive, one process of its own for the load; a few seconds in all. It
prints, and holds nothing against a goal: the load shares the machine's cores with the server.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import psutil
import uvloop

from tests.support import onnx_models
from tests.support.serving_process import ServingProcess, serving

SECONDS = 1.5
SWAP_SECONDS = 3.0
SWAP_WINDOW = 0.05


@dataclass(slots=True)
class Samples:
    """Requests: when each was sent, how long it took, in seconds, and how many failed."""

    failed: int = 0
    sent: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)


class Caller(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer."""

    def __init__(self, request: bytes, samples: Samples) -> None:
        self._request = request
        self._samples = samples
        self._sent = 0.0
        self._waiting = b""
        self._transport: asyncio.Transport | None = None
        self.running = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: begin to ask."""
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """asyncio: a part of an answer."""
        self._waiting += data
        head, separator, body = self._waiting.partition(b"\r\n\r\n")
        if not separator:
            return
        if len(body) < int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            return
        self._samples.failed += not head.startswith(b"HTTP/1.1 200 ")
        self._samples.sent.append(self._sent)
        self._samples.took.append(time.perf_counter() - self._sent)
        self._waiting = b""
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone; if not by our will, a request failed."""
        self._samples.failed += self.running
        self._transport = None

    def _ask(self) -> None:
        if self._transport is None:
            return
        if not self.running:
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(self._request)


async def ask(server: ServingProcess, connections: int, seconds: float, request: bytes) -> Samples:
    """Ask on so many connections for so long."""
    host, _, port = server.http.rpartition(":")
    samples = Samples()
    callers: list[Caller] = []
    for _ in range(connections):
        _, caller = await asyncio.get_running_loop().create_connection(
            lambda: Caller(request, samples), host, int(port)
        )
        callers.append(caller)
    await asyncio.sleep(seconds)
    for caller in callers:
        caller.running = False
    await asyncio.sleep(0.05)
    return samples


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time that the server used so far; the only figure that other work on the machine leaves alone."""
    times = process.cpu_times()
    return float(times.user + times.system)


def percentiles(took: list[float]) -> str:
    """p50 and p99 in milliseconds."""
    if not took:
        return "none"
    p50, p99, longest = (float(value) * 1e3 for value in (*np.percentile(took, [50, 99]), max(took)))
    return f"p50 {p50:6.3f} ms   p99 {p99:6.3f} ms   max {longest:6.2f} ms"


async def swap(server: ServingProcess, until: float) -> list[tuple[float, float]]:
    """Swap again and again; returns begin and end of each swap."""
    windows: list[tuple[float, float]] = []
    version = 1
    while time.perf_counter() < until:
        version += 1
        content = onnx_models.mlp(seed=version)
        await asyncio.to_thread(onnx_models.put, server.repository, "mlp", version, content)
        begin = time.perf_counter()
        reply = await asyncio.to_thread(server.load, "mlp")
        if reply.status != 200:
            raise RuntimeError(reply.error)
        windows.append((begin, time.perf_counter()))
        await asyncio.sleep(0.15)
    return windows


async def measure(server: ServingProcess) -> None:
    """Measure and print."""
    features = np.random.default_rng(0).random(64).round(4).tolist()
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": features}]}).encode()
    request = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    process = psutil.Process(server.process.pid)
    await ask(server, 4, 0.5, request)
    for connections in (1, 8, 32):
        before = cpu_seconds(process)
        samples = await ask(server, connections, SECONDS, request)
        cpu = (cpu_seconds(process) - before) / max(1, len(samples.took)) * 1e6
        rate = len(samples.took) / SECONDS
        print(
            f"{connections:3d} connections  {rate:8.0f} requests/s  {cpu:4.0f} us CPU each  {percentiles(samples.took)}"
        )
    until = time.perf_counter() + SWAP_SECONDS
    samples, windows = await asyncio.gather(ask(server, 8, SWAP_SECONDS, request), swap(server, until - 0.3))
    inside: list[float] = []
    outside: list[float] = []
    for sent, took in zip(samples.sent, samples.took, strict=True):
        during = any(begin - took <= sent <= end + SWAP_WINDOW for begin, end in windows)
        (inside if during else outside).append(took)
    seconds = sorted(end - begin for begin, end in windows)
    print(f"{len(windows)} swaps under 8 connections, {samples.failed} of {len(samples.took)} requests failed")
    print(f"  a load call takes {seconds[len(seconds) // 2] * 1e3:.0f} ms (median)")
    print(f"  in swap windows  {percentiles(inside)}")
    print(f"  outside          {percentiles(outside)}")


def main() -> None:
    """Start a server and measure it."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        onnx_models.put(root / "models", "mlp", 1, onnx_models.mlp())
        with serving(root / "models", root) as server:
            uvloop.run(measure(server))


if __name__ == "__main__":
    main()
