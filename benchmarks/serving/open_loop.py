"""Open-loop HTTP load in a process of its own: requests are due whether or not earlier ones were answered.

``PORT PATH BODY-FILE HEADERS-JSON RATE SECONDS CONNECTIONS DEADLINE SEED`` on the command line, one JSON object on
standard output. Arrivals are Poisson, drawn beforehand. The delay of an answer counts from when its request was due, so
that neither a stalled server nor a late generator can hide; the delay of a refusal from when its request was handed to
the transport, since it is the server that is asked how soon it says no. By how much the generator was late, and what
CPU it took, is told beside both. A connection carries one request at a time. What finds none free is counted as not
sent: the number of connections bounds what is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httptools
import numpy as np
import uvloop

from benchmarks.averages import percentiles_ms

TICK_SECONDS = 0.001
REFUSALS = frozenset({429, 503, 504})
"""Also a deadline that passed tells the caller no, if late."""

CLOSE_SECONDS = 2.0
"""Answers that take longer after the last request was sent are not waited for."""


@dataclass(slots=True)
class Tally:
    """What came back."""

    good: list[float] = field(default_factory=list)  # delays of good answers since they were due, seconds
    refused: list[float] = field(default_factory=list)  # delays of refusals since the requests were sent, seconds
    statuses: Counter[int] = field(default_factory=Counter)  # how often each status came
    unsent: int = 0  # requests that were due when no connection was free
    broken: int = 0  # connections that ended with a request under way
    late: float = 0.0  # by how much requests were sent after they were due, seconds, summed up


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._parser: Any = None
        self._transport: asyncio.Transport | None = None
        self._due: float | None = None
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: it may ask from now on."""
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        self._load.free.append(self)

    def ask(self, due: float) -> None:
        """Send the request that is due."""
        self._due, self._sent = due, time.perf_counter()
        if self._transport is not None:
            self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        """asyncio: a part of an answer."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """httptools: the answer is whole."""
        if self._due is None:
            return
        self._load.answered(self._parser.get_status_code(), self._due, self._sent, time.perf_counter())
        self._due = None
        if not self._parser.should_keep_alive():
            self._close()
        elif self._transport is not None:
            self._load.free.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: it is gone; if the server cut it, another takes its place."""
        self._transport = None
        if self._due is not None:
            self._due = None
            self._load.cut()
        self._load.lost(self)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Load:
    """Sends what is due."""

    def __init__(self, host: str, port: int, request: bytes, connections: int) -> None:
        self.request = request
        self.free: list[Caller] = []
        self.tally = Tally()
        self._address = host, port
        self._connections = connections
        self._closing = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self, due: Sequence[float]) -> Tally:
        """Send a request at each of these times, seconds from now."""
        await asyncio.gather(*(self._connect() for _ in range(self._connections)))
        began, index = time.perf_counter() + 0.05, 0
        while index < len(due):
            now = time.perf_counter() - began
            while index < len(due) and due[index] <= now:
                self._send(began + due[index])
                index += 1
            await asyncio.sleep(TICK_SECONDS)
        self._closing = True
        if self._under_way:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), CLOSE_SECONDS)
        return self.tally

    def answered(self, status: int, due: float, sent: float, at: float) -> None:
        """An answer came: when its request was due and sent, and when that was, in seconds of ``time.perf_counter``."""
        self._ended()
        self.tally.statuses[status] += 1
        if status == 200:
            self.tally.good.append(at - due)
        elif status in REFUSALS:
            self.tally.refused.append(at - sent)

    def lost(self, caller: Caller) -> None:
        """A connection is gone; open another one unless all is over."""
        if caller in self.free:
            self.free.remove(caller)
        if not self._closing:
            task = asyncio.get_running_loop().create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def cut(self) -> None:
        """A connection ended with a request under way."""
        self._ended()
        self.tally.broken += 1

    def _ended(self) -> None:
        self._under_way -= 1
        if self._closing and not self._under_way:
            self._idle.set()

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: Caller(self), *self._address)

    def _send(self, due: float) -> None:
        if not self.free:
            self.tally.unsent += 1
            return
        self._under_way += 1
        self.tally.late += time.perf_counter() - due
        self.free.pop().ask(due)


def request_bytes(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A POST request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Times at which requests are due: a Poisson process."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, round(rate * seconds))
    return cast("list[float]", np.cumsum(gaps).tolist())


def summary(tally: Tally, planned: int, seconds: float, deadline: float) -> dict[str, Any]:
    """What the process prints.

    Args:
        tally: What came back.
        planned: Requests that were due.
        seconds: In which they were due.
        deadline: Delay, in seconds, up to which an answer is of use.
    """
    sent = planned - tally.unsent
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "due": planned,
        "unsent": tally.unsent,
        "answered": len(tally.good),
        "in_time": sum(each <= deadline for each in tally.good),
        "goodput": sum(each <= deadline for each in tally.good) / seconds,
        "refused": len(tally.refused),
        "statuses": {str(status): count for status, count in sorted(tally.statuses.items())},
        "broken": tally.broken,
        "mean_late_ms": tally.late / max(1, sent) * 1e3,
        "good_ms": _percentiles(tally.good),
        "refused_ms": _percentiles(tally.refused),
        "generator_cpu_seconds": used.ru_utime + used.ru_stime,
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return dict(zip(("p50", "p99", "max"), percentiles_ms(seconds), strict=True))


def main(arguments: Sequence[str]) -> None:
    """Load a server and print what came of it."""
    port, path, body, headers, rate, seconds, connections, deadline, seed = arguments
    request = request_bytes(path, Path(body).read_bytes(), json.loads(headers))
    due = arrivals(float(rate), float(seconds), int(seed))
    tally = uvloop.run(Load("127.0.0.1", int(port), request, int(connections)).run(due))
    print(json.dumps(summary(tally, len(due), float(seconds), float(deadline))))


if __name__ == "__main__":
    main(sys.argv[1:])
