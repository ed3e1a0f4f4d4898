"""Load from a process of its own that notes every answer: ``python -m benchmarks.serving.swap_load``.

Closed loop over keep-alive connections, until stdin ends; a line says when the first answer is there. A connection
that the server announced to close is opened anew; one that ends while an answer is due is a failed request. Times are
seconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from array import array
from pathlib import Path
from typing import cast

import numpy as np
import uvloop

MAX_ANSWERS = 50_000_000


class Notes:
    """What was seen of all connections together.

    Attributes:
        ended: When each good answer was there.
        took: How long each took, in seconds.
        failures: What else happened, in a few words each.
        connections: Connections that were opened.
    """

    def __init__(self) -> None:
        self.ended = array("d")
        self.took = array("f")
        self.failures: list[str] = []
        self.connections = 0

    def save(self, path: Path) -> None:
        """Write them where :mod:`benchmarks.serving.swaps` reads them, at once or not at all."""
        temporary = path.with_suffix(".part.npz")
        np.savez(
            temporary,
            allow_pickle=False,
            ended=np.array(self.ended),
            took=np.array(self.took),
            failures=np.array(self.failures, dtype=np.str_),
            connections=np.array(self.connections),
        )
        temporary.replace(path)


class Asking(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer."""

    def __init__(self, request: bytes, notes: Notes, on_close: asyncio.Event) -> None:
        self._request = request
        self._notes = notes
        self._on_close = on_close
        self._sent = 0.0
        self._waiting = b""
        self._transport: asyncio.Transport | None = None
        self._announced = False
        self.running = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: begin to ask."""
        self._transport = cast("asyncio.Transport", transport)
        self._notes.connections += 1
        self._ask()

    def data_received(self, data: bytes) -> None:
        """asyncio: a part of an answer."""
        now = time.monotonic()
        self._waiting += data
        head, separator, body = self._waiting.partition(b"\r\n\r\n")
        if not separator:
            return
        head = head.lower()
        if len(body) < int(head.split(b"content-length: ")[1].split(b"\r\n")[0]):
            return
        notes = self._notes
        if not notes.ended and not notes.failures:
            print("asking", flush=True)
        if head.startswith(b"http/1.1 200 ") and len(notes.ended) < MAX_ANSWERS:
            notes.ended.append(now)
            notes.took.append(now - self._sent)
        else:
            notes.failures.append(self._waiting[:200].decode("latin-1"))
        self._waiting = b""
        self._announced = b"connection: close" in head
        if self._announced or not self.running:
            self._close()
        else:
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone; if nobody said so before, a request failed."""
        if self.running and not self._announced:
            self._notes.failures.append(f"the connection ended while an answer was due: {exc!r}")
        self._transport = None
        self._on_close.set()

    def _ask(self) -> None:
        if self._transport is not None:
            self._sent = time.monotonic()
            self._transport.write(self._request)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def keep_asking(host: str, port: int, request: bytes, notes: Notes, stop: asyncio.Event) -> None:
    """Ask on one connection, or on one after the other, until ``stop`` is set."""
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        closed = asyncio.Event()
        asking = Asking(request, notes, closed)
        try:
            await loop.create_connection(lambda asking=asking: asking, host, port)  # type: ignore[misc]
        except OSError as error:
            notes.failures.append(f"no connection: {error}")
            return
        ends = [loop.create_task(event.wait()) for event in (closed, stop)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        asking.running = not stop.is_set()
        for end in ends:
            end.cancel()


async def load(host: str, port: int, request: bytes, connections: int, path: Path) -> None:
    """Ask on so many connections until stdin ends; then write what was seen."""
    notes = Notes()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(keep_asking(host, port, request, notes, stop))
    notes.save(path)


def main() -> None:
    """Ask as the command line says."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.swap_load")
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("request", type=Path, help="file with all bytes of the request")
    parser.add_argument("notes", type=Path, help="where to write what was seen")
    parser.add_argument("--connections", type=int, default=8)
    arguments = parser.parse_args()
    host, _, port = arguments.address.rpartition(":")
    uvloop.run(load(host, int(port), arguments.request.read_bytes(), arguments.connections, arguments.notes))


if __name__ == "__main__":
    main()
