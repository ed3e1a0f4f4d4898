"""The sockets on which a server listens, opened apart from it so that it can hand them to the process that follows."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sized
from typing import Final, Protocol, TypeVar

from tiercel.serving.connections.crowding import Activity, whom_to_close

BACKLOG: Final = 1024
"""Connections that may wait in the kernel to be accepted."""
# uvloop accepts one connection a turn, and needs a few more to read what it brought.
_TURNS_TO_READ = 8
_TURNS_AT_MOST = 2000


class Guest(Protocol):
    """A connection, as far as the others have to know it."""

    def activity(self) -> Activity:
        """Who is at the other end, and since when nothing happens."""

    def give_way(self) -> None:
        """Close, since others need the place."""


Connection = TypeVar("Connection", bound=Guest)


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: Address or name; of a name with several addresses an IPv4 one is taken.
        port: Port; 0 for any free one.

    Raises:
        OSError: The address is not free, or not of this machine.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda each: each[0] is not socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


async def accept(make: Callable[[], asyncio.Protocol], listening: socket.socket) -> asyncio.Server:
    """Accept connections on a socket that listens, each with a protocol of its own."""
    return await asyncio.get_running_loop().create_server(make, sock=listening, backlog=BACKLOG)


def port_of(listener: socket.socket) -> int:
    """The port it listens on."""
    port: int = listener.getsockname()[1]
    return port


class Connections(set[Connection]):
    """All open connections of a server; each enters and leaves by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def leave(self, connection: Connection) -> None:
        """A connection is gone."""
        self.discard(connection)
        self._changed.set()

    def make_room(self, most: int, now: float) -> bool:
        """Whether there is room for one more; where there was none, those that nothing happens on have to go.

        Args:
            most: Connections at the same time.
            now: Seconds of the clock that they go by.
        """
        if len(self) < most:
            return True
        guests = list(self)
        for index in whom_to_close([guest.activity() for guest in guests], now):
            self.leave(guests[index])  # at once: many may come in one turn of the event loop
            guests[index].give_way()
        return len(self) < most

    async def wait_empty(self) -> None:
        """Wait until there is none."""
        while self:
            self._changed.clear()
            await self._changed.wait()

    async def wait_at_most(self, seconds: float) -> None:
        """Wait until there is none, or so many seconds are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait_empty()


async def read_what_is_there(connections: Sized) -> None:
    """Accept and read what lies in the kernel by now, so that who closes after it cuts off nobody who came before.

    Returns when the event loop has found no new connection for as many turns as it takes to read from one.

    Args:
        connections: Those that are open; grows as they are accepted.
    """
    quiet, known = 0, len(connections)
    for _ in range(_TURNS_AT_MOST):
        await asyncio.sleep(0)
        quiet = quiet + 1 if len(connections) == known else 0
        known = len(connections)
        if quiet == _TURNS_TO_READ:
            return
