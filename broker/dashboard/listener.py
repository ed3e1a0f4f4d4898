"""Where the dashboard listens, on this machine in the clear, for others by TLS 1.3; and how many it takes."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import TYPE_CHECKING

from aiohttp import web

from tiercel.broker.progress.door import Place, listen_at
from tiercel.broker.progress.encryption import HandshakeLimits, Handshakes, Knock, ServerContext
from tiercel.core.addresses import join_address, network_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# At each place. docs/dashboard.md has these numbers.
MOST_CONNECTIONS = 256
MOST_CONNECTIONS_OF_AN_ADDRESS = 64
# Without a request that is whole, headers and all.
IDLE_SECONDS = 15.0
# Of a client that takes nothing of what was sent to it; the kernel ends such a connection.
UNREAD_SECONDS = 30.0
STOP_SECONDS = 1.0
MAX_LINE_BYTES = 4 * 1024
MAX_HEADER_BYTES = 8 * 1024
MAX_HEADERS = 64


class Listener:
    """Takes connections.

    Args:
        places: Where; those that have something to show are encrypted.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._runner: web.AppRunner | None = None
        self._doors: list[_EncryptedDoor] = []

    @property
    def addresses(self) -> list[str]:
        """Where it listens, ``host:port``, in the order of the places."""
        pairs = zip(self._places, self._sockets, strict=True)
        return [join_address(place.called or place.host, bound.getsockname()[1]) for place, bound in pairs]

    def bind(self) -> None:
        """Take the ports.

        Raises:
            UnavailableError: One is in use.
        """
        for place in self._places:
            bound = listen_at(place)
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_SECONDS * 1000))
            self._sockets.append(bound)

    async def start(self, app: web.Application) -> None:
        """Let an application answer."""
        self._runner = runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=STOP_SECONDS,
            shutdown_timeout=STOP_SECONDS,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
        )
        await runner.setup()
        assert runner.server is not None  # noqa: S101 - it was set up
        for place, bound in zip(self._places, self._sockets, strict=True):
            door: _PlainDoor | _EncryptedDoor = _PlainDoor(runner.server)
            if place.shown is not None:
                door = _EncryptedDoor(runner.server, ServerContext(place.shown))
                self._doors.append(door)
            self._servers.append(await asyncio.get_running_loop().create_server(door.make, sock=bound))

    def look(self) -> None:
        """Let those come who had to wait; to be called each half second."""
        for door in self._doors:
            door.handshakes.forget()

    async def stop(self) -> None:
        """Listen no more, and end every connection. May be called again."""
        for server in self._servers:
            server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        for bound in self._sockets:
            bound.close()


class _Closed(asyncio.Protocol):
    """Of a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a server makes for a socket
        transport.abort()


class _PlainDoor:
    """On this machine, where all come from the same address."""

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def make(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        there = sum(each.ssl_context is None for each in self._server.connections)
        return self._server() if there < MOST_CONNECTIONS else _Closed()


class _EncryptedDoor:
    """For others: nobody begins to encrypt for whom there is no room."""

    def __init__(self, server: web.Server, context: ServerContext) -> None:
        self.handshakes = Handshakes(HandshakeLimits())
        self._server = server
        self._context = context
        self._there: dict[asyncio.Protocol, str] = {}

    def make(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return Knock(self, self._server(), self._context, self.handshakes.limits.seconds)

    def knocked(self, inner: asyncio.Protocol, transport: asyncio.Transport) -> bool:
        """Whether a connection may begin to encrypt."""
        address = network_of(str(transport.get_extra_info("peername")[0]))
        crowd = Counter(self._there.values())[address]
        if len(self._there) >= MOST_CONNECTIONS or crowd >= MOST_CONNECTIONS_OF_AN_ADDRESS:
            return False
        if not self.handshakes.may_begin(address):
            return False
        self._there[inner] = address
        return True

    def went(self, inner: asyncio.Protocol) -> None:
        """A connection has ended."""
        self._there.pop(inner, None)
