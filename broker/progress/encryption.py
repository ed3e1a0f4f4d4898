"""TLS 1.3 at the embedded MQTT server's door for others, and how often anybody may knock there."""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tiercel.core.trust.contexts import load_identity

if TYPE_CHECKING:
    from tiercel.broker.trust.doors import Shown
    from tiercel.core.trust.certificates import Identity

_logger = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class HandshakeLimits:
    """What strangers may make the server compute."""

    seconds: float = 5.0  # how long a handshake may take
    of_an_address: int = 16  # connections from one address that may begin in half a second; beyond it they are cut off
    in_all: int = 64  # the same from all addresses


class ServerContext:
    """What TLS shows, which changes without a restart.

    Args:
        shown: Asked at each new connection.

    Raises:
        OSError: The first certificate is of no use.
    """

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._identity = shown.current()
        self._refused: Identity | None = None
        self._context = _context()
        load_identity(self._context, self._identity)

    def current(self) -> ssl.SSLContext:
        """With the certificate of this moment; an earlier one while that is of no use."""
        identity = self._shown.current()
        if identity is not self._identity:
            try:
                # Tried apart first: half of a pair in a context that is in use would break it.
                load_identity(_context(), identity)
                load_identity(self._context, identity)
                self._identity = identity
            except OSError as error:  # tried again at the next connection: it may be for want of room
                if identity is not self._refused:
                    _logger.warning("MQTT: a new certificate is of no use (%s); that of before is shown on", error)
                self._refused = identity
        return self._context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Connections last for days, and nobody would come back with one.
    context.num_tickets = 0
    return context


class Handshakes:
    """Counts who knocks; a handshake costs the server half a millisecond, whoever asks for it.

    Args:
        limits: How often they may.
    """

    def __init__(self, limits: HandshakeLimits) -> None:
        self.limits = limits
        self._begun: Counter[str] = Counter()

    def may_begin(self, address: str) -> bool:
        """Whether one more may begin now; counts it if so."""
        if self._begun[address] >= self.limits.of_an_address or self._begun.total() >= self.limits.in_all:
            return False
        self._begun[address] += 1
        return True

    def forget(self) -> None:
        """Half a second is over."""
        self._begun.clear()


class Entrance(Protocol):
    """What a connection asks of its door."""

    def knocked(self, inner: asyncio.Protocol, transport: asyncio.Transport) -> bool:
        """Whether a connection may begin its handshake."""

    def went(self, inner: asyncio.Protocol) -> None:
        """It has ended."""


class Knock(asyncio.Protocol):
    """A connection before its handshake; the event loop's own servers begin that before anybody is asked.

    Args:
        door: Decides whether it may begin.
        inner: The protocol inside, which hears of the connection once the handshake is done.
        seconds: How long the handshake may take.
    """

    def __init__(self, door: Entrance, inner: asyncio.Protocol, context: ServerContext, seconds: float) -> None:
        self._door = door
        self._inner = inner
        self._context = context
        self._seconds = seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected, and has said nothing yet."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a server makes for a socket
        if not self._door.knocked(self._inner, transport):
            transport.abort()
            return
        encrypted = _Encrypted(self._door, self._inner, self._context.current(), self._seconds)
        transport.set_protocol(encrypted)
        encrypted.connection_made(transport)


class _Encrypted(SSLProtocol):
    """Stands between a socket and the protocol that reads what was encrypted."""

    def __init__(self, door: Entrance, inner: asyncio.Protocol, context: ssl.SSLContext, seconds: float) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            inner,
            context,
            None,  # type: ignore[arg-type] # nobody waits
            server_side=True,
            ssl_handshake_timeout=seconds,  # type: ignore[arg-type] # takes parts of seconds as well
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        self._door = door
        self._inner = inner

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection has ended, perhaps before the handshake did."""
        super().connection_lost(exc)
        self._door.went(self._inner)
