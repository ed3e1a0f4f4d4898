"""What the inference server does on this machine, and what swaps cost it: ``python -m benchmarks.serving_smoke``.

A small MLP (64-128-10), JSON, closed loop, keep-alive, one process of its own for the load; a few seconds in all. The
load shares the machine's cores with the server, so no rate is held against a goal, only what must not depend on speed.
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

from benchmarks.averages import percentiles_ms
from benchmarks.bars import keep_result
from benchmarks.results import Bar, Json
from benchmarks.serving.open_loop import request_bytes
from testing import onnx_models
from testing.cpu import cpu_seconds
from testing.serving_process import ServingProcess, serving

SECONDS = 1.5
SWAP_SECONDS = 3.0
SWAP_WINDOW = 0.05
CONNECTIONS = (1, 8, 32)


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


def latency_ms(took: list[float]) -> Json:
    """p50, p99 and the longest, in milliseconds; empty when nothing was asked."""
    if not took:
        return {}
    p50, p99, longest = percentiles_ms(took)
    return {"p50_ms": p50, "p99_ms": p99, "max_ms": longest}


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


def mlp_request() -> bytes:
    """The one request that is asked all the time."""
    features = np.random.default_rng(0).random(64).round(4).tolist()
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": features}]}).encode()
    return request_bytes("/v2/models/mlp/infer", body, {})


async def measure_rates(server: ServingProcess, request: bytes) -> list[Json]:
    """Rate, CPU time and latency for several numbers of connections."""
    process = psutil.Process(server.process.pid)
    await ask(server, 4, 0.5, request)
    rows = []
    for connections in CONNECTIONS:
        before = cpu_seconds(process)
        samples = await ask(server, connections, SECONDS, request)
        cpu = (cpu_seconds(process) - before) / max(1, len(samples.took)) * 1e6
        rows.append(
            {
                "connections": connections,
                "requests_per_second": round(len(samples.took) / SECONDS),
                "cpu_us_per_request": round(cpu, 1),
                "failed": samples.failed,
                **latency_ms(samples.took),
            }
        )
    return rows


async def measure_swaps(server: ServingProcess, request: bytes) -> Json:
    """What swaps under load do to requests."""
    until = time.perf_counter() + SWAP_SECONDS
    samples, windows = await asyncio.gather(ask(server, 8, SWAP_SECONDS, request), swap(server, until - 0.3))
    inside: list[float] = []
    outside: list[float] = []
    for sent, took in zip(samples.sent, samples.took, strict=True):
        during = any(begin - took <= sent <= end + SWAP_WINDOW for begin, end in windows)
        (inside if during else outside).append(took)
    seconds = sorted(end - begin for begin, end in windows)
    return {
        "swaps": len(windows),
        "requests": len(samples.took),
        "failed": samples.failed,
        "load_call_median_ms": round(seconds[len(seconds) // 2] * 1e3, 1),
        "inside": latency_ms(inside),
        "outside": latency_ms(outside),
    }


async def measure(server: ServingProcess) -> Json:
    """All figures."""
    request = mlp_request()
    return {"rates": await measure_rates(server, request), "swaps": await measure_swaps(server, request)}


def report(figures: Json) -> None:
    """Print the figures and write them to ``build/results/serving-smoke.json``."""
    for row in figures["rates"]:
        print(
            f"{row['connections']:3d} connections  {row['requests_per_second']:6d} requests/s  "
            f"{row['cpu_us_per_request']:5.1f} us CPU each  p50 {row['p50_ms']:7.3f} ms  p99 {row['p99_ms']:7.3f} ms"
        )
    swaps = figures["swaps"]
    print(
        f"{swaps['swaps']} swaps under 8 connections, {swaps['failed']} of {swaps['requests']} requests failed; "
        f"p99 {swaps['inside'].get('p99_ms')} ms in swap windows, {swaps['outside'].get('p99_ms')} ms outside"
    )
    keep_result("serving-smoke", command="make serving-smoke", figures=figures, keep=False)


def bars_of(figures: Json) -> list[Bar]:
    """What must hold whatever the machine is doing."""
    swaps = figures["swaps"]
    failed = swaps["failed"] + sum(row["failed"] for row in figures["rates"])
    return [Bar("failed requests, swaps included", failed, "== 0"), Bar("swaps under load", swaps["swaps"], ">= 5")]


def main() -> None:
    """Start a server and measure it."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        onnx_models.put(root / "models", "mlp", 1, onnx_models.mlp())
        with serving(root / "models", root) as server:
            report(uvloop.run(measure(server)))


if __name__ == "__main__":
    main()
