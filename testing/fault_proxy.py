"""A TCP proxy that does to what goes through it what networks and broken servers do, as a test says."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Iterator

_PIECE = 64 * 1024


class Fault(enum.Enum):
    """What happens to connections, those that are open included."""

    NONE = "none"
    DELAY = "delay"
    """Everything comes 0.2 s later."""
    STALL = "stall"
    """What is sent is taken, and nothing comes out at either end."""
    RESET = "reset"
    """A connection is reset as soon as something is sent on it."""
    RESET_ANSWER = "reset answer"
    """A connection is reset once the answer has begun."""
    GARBAGE = "garbage"
    """The answer is no HTTP."""
    ENDLESS = "endless"
    """The answer's headers do not end."""
    DRIP = "drip"
    """The answer comes a byte at a time, ten a second."""


class FaultProxy:
    """Listens on a port of its own, and passes on to another one.

    Attributes:
        fault: What happens from now on.
        connections: How many were accepted.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.fault = Fault.NONE
        self.connections = 0
        self.address = ""

    async def serve(self, began: threading.Event, end: asyncio.Event) -> None:
        """Work until ``end`` is set."""
        tasks: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            self.connections += 1
            with contextlib.suppress(OSError):
                await self._pass(reader, writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        began.set()
        await end.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, back, writer))
                group.create_task(self._answers(there, writer))
        except* (OSError, _ResetError):
            pass
        finally:
            back.close()
            writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, to: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(_PIECE):
            match self.fault:
                case Fault.STALL:
                    continue
                case Fault.RESET:
                    _reset(to)
                case Fault.GARBAGE:
                    to.write(b"SSH-2.0-something\r\n\r\n")
                    continue
                case Fault.ENDLESS:
                    to.write(b"HTTP/1.1 200 OK\r\n" + b"x-filler: " + b"x" * 1024 * 1024)
                    continue
                case Fault.DELAY:
                    await asyncio.sleep(0.2)
            back.write(data)
        raise _ResetError

    async def _answers(self, there: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await there.read(_PIECE):
            match self.fault:
                case Fault.STALL:
                    continue
                case Fault.RESET_ANSWER:
                    to.write(data[:20])
                    await asyncio.sleep(0.05)
                    _reset(to)
                case Fault.DRIP:
                    for byte in data:
                        to.write(bytes((byte,)))
                        await asyncio.sleep(0.1)
                    continue
            to.write(data)
        raise _ResetError


class _ResetError(Exception):
    """A connection ends at both ends."""


def _reset(writer: asyncio.StreamWriter) -> None:
    found: socket.socket = writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise _ResetError


@contextlib.contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """A proxy in a thread of its own."""
    proxy, began = FaultProxy(target), threading.Event()
    loop, end = asyncio.new_event_loop(), asyncio.Event()

    def work() -> None:
        loop.run_until_complete(proxy.serve(began, end))
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(10.0)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(10.0)
