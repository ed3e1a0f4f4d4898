"""The door to the socket of a run: lets in a few connections, and through all of them only so many bytes a second.

gRPC's server takes as many connections as anybody opens, each of which costs the agent a descriptor and memory, and
reads ahead of whoever serves a call. What runs in a job is not to be trusted with either.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tiercel.core.tasks import run_until_one_ends
from tiercel.trainer_agent.disk.job_folder import SOCKET
from tiercel.trainer_agent.reports.token_bucket import TokenBucket
from tiercel.trainer_agent.supervision import Supervisor

CONNECTIONS: Final = 8
_ACCEPTED_PER_SECOND: Final = 20.0
_BYTES_PER_SECOND: Final = 1024.0 * 1024
_BYTES_AT_ONCE: Final = 4.0 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_LAST_BYTES_SECONDS: Final = 2.0
_LONGEST_SOCKET_PATH: Final = 100  # the kernel takes 107 bytes


class TrainerDoor:
    """Passes on to another Unix socket what comes in at one.

    Args:
        path: Where it listens.
        inner: Path of the socket where gRPC listens.
        crowded: Called for each connection that is refused because there are too many.

    Raises:
        OSError: There cannot be a socket.
    """

    def __init__(self, path: str, inner: str, crowded: Callable[[], None]) -> None:
        self._inner = inner
        self._crowded = crowded
        now = time.monotonic()
        self._bytes = TokenBucket(_BYTES_PER_SECOND, _BYTES_AT_ONCE, now)
        self._accepted = TokenBucket(_ACCEPTED_PER_SECOND, 2.0 * CONNECTIONS, now)
        self._open: set[asyncio.Task[None]] = set()
        self._running = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._listener.bind(path)
            self._listener.listen(CONNECTIONS)
        except BaseException:
            self._listener.close()
            raise

    async def run(self) -> None:
        """Let in, until cancelled; then nobody is connected any more."""
        loop = asyncio.get_running_loop()
        self._running = True
        with self._listener:
            async with Supervisor() as tasks:
                while True:
                    await _wait_room(self._accepted)
                    connection, _ = await loop.sock_accept(self._listener)
                    self._accepted.take(1, time.monotonic())
                    if len(self._open) >= CONNECTIONS:
                        self._crowded()
                        connection.close()
                        continue
                    task = tasks.start("trainer connection", self._serve(connection))
                    self._open.add(task)
                    task.add_done_callback(self._open.discard)
                    # It may be ended before it began.
                    task.add_done_callback(functools.partial(_close, connection))

    def close(self) -> None:
        """Listen no more, if it never ran; what runs is cancelled."""
        if not self._running:
            self._listener.close()

    async def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # either side may go at any time
            outer_reader, outer = await asyncio.open_unix_connection(sock=connection, limit=_CHUNK_BYTES)
            try:
                await self._relay(outer_reader, outer)
                outer.close()
                async with asyncio.timeout(_LAST_BYTES_SECONDS):
                    await outer.wait_closed()
            finally:
                outer.transport.abort()

    async def _relay(self, outer_reader: asyncio.StreamReader, outer: asyncio.StreamWriter) -> None:
        inner_reader, inner = await asyncio.open_unix_connection(self._inner, limit=_CHUNK_BYTES)
        try:
            await run_until_one_ends(
                inward=_pass_on(outer_reader, inner, self._bytes), outward=_pass_on(inner_reader, outer, None)
            )
        finally:
            inner.transport.abort()


def _close(connection: socket.socket, _: asyncio.Task[None]) -> None:
    connection.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bucket: TokenBucket | None) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
        if bucket is not None:
            bucket.take(len(data), time.monotonic())
            await _wait_room(bucket)


async def _wait_room(bucket: TokenBucket) -> None:
    await asyncio.sleep(bucket.seconds_until_room(time.monotonic()))


@contextlib.contextmanager
def socket_path(folder: Path) -> Iterator[str]:
    """The path of the socket in a folder, as the kernel takes it.

    One that is too long goes through a descriptor of the folder, and holds only as long as the block lasts.
    """
    if fits(folder):
        yield os.fspath(folder.absolute() / SOCKET)
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def fits(folder: Path) -> bool:
    """Whether the kernel takes the path of the socket in a folder."""
    return len(os.fsencode(folder.absolute() / SOCKET)) <= _LONGEST_SOCKET_PATH
