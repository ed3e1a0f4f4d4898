"""Who knocks at an encrypted door: a connection until it has shown who it is, and how much it may take until then.

Nothing that a stranger sends is kept beyond a bound. Where there are too many strangers those of the address with
most go first, and their handshakes are worked on in turn, by address, a little in each turn of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from tiercel.serving.connections.crowding import Activity, Doing, peer_of
from tiercel.serving.connections.encrypted_connection import EncryptedConnection
from tiercel.serving.connections.listening import Connections

_logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 5.0
"""How long a connection may take to say who it is."""
MOST_STRANGERS: Final = 256
"""Connections that have not said it yet, of all encrypted doors together."""
MOST_BYTES: Final = 64 * 1024
"""What one may send until then; certificates are a few thousand."""
# Of one turn of the event loop; a handshake's two steps take about 1 ms each.
_TURN_SECONDS = 0.002

MakeProtocol = Callable[[], asyncio.Protocol]


class Turns:
    """Has steps of handshakes done soon, those of each address in turn.

    Who knocks a thousand times makes others wait for one of the thousand, not for all of them.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._is_due = False

    def put(self, peer: str, step: Callable[[], None]) -> None:
        """Do this when it is the address' turn; it must raise nothing."""
        self._waiting.setdefault(peer, deque()).append(step)
        self._see_to_it()

    def _see_to_it(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        until = time.perf_counter() + _TURN_SECONDS
        while self._waiting:
            peer = next(iter(self._waiting))
            steps = self._waiting.pop(peer)
            steps.popleft()()
            if steps:
                self._waiting[peer] = steps  # behind the others
            if time.perf_counter() >= until:
                break
        self._is_due = False
        if self._waiting:
            self._see_to_it()


class Lobby(Connections["Handshake"]):
    """All who knock at the encrypted doors of one server."""

    def __init__(self, most: int = MOST_STRANGERS) -> None:
        super().__init__()
        self.most = most
        self.turns = Turns()


class Handshake(asyncio.Protocol):
    """A connection until both ends know each other; then a protocol made for it takes over.

    Args:
        lobby: All who knock; this one enters and leaves by itself.
        now: Seconds since the Unix epoch.
    """

    def __init__(
        self, make: MakeProtocol, context: ssl.SSLContext, lobby: Lobby, now: Callable[[], float] = time.time
    ) -> None:
        self._make = make
        self._context = context
        self._lobby = lobby
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._below: asyncio.Transport | None = None
        self._peer = ""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: somebody knocks."""
        below = self._below = cast("asyncio.Transport", transport)
        self._peer = peer_of(below.get_extra_info("peername"))
        self._lobby.make_room(self._lobby.most, self._since)
        self._lobby.add(self)
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, below.abort)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of the handshake."""
        below = self._below
        if below is None or below.is_closing():
            return
        self._received += len(data)
        self._incoming.write(data)
        below.pause_reading()
        self._lobby.turns.put(self._peer, self._step)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone before anybody knew whose it was."""
        self._below = None
        self._leave()

    def activity(self) -> Activity:
        """See :meth:`.Guest.activity`."""
        return Activity(self._peer, Doing.NOTHING, self._since)

    def give_way(self) -> None:
        """See :meth:`.Guest.give_way`."""
        if self._below is not None:
            self._below.abort()

    def _leave(self) -> None:
        self._lobby.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        below = self._below
        if below is None or below.is_closing():
            return
        if self._tls is None:
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            self._tls.do_handshake()
            self._check_time(self._tls)
        except ssl.SSLWantReadError:
            self._send(below)
            if self._received > MOST_BYTES:
                below.abort()
            else:
                below.resume_reading()
        except ssl.SSLError as error:
            _logger.debug("%s was not let in: %s", self._peer, error)
            self._send(below)  # says why, as TLS does
            below.close()
        else:
            self._send(below)
            self._hand_on(below, self._tls)

    def _check_time(self, tls: ssl.SSLObject) -> None:
        """A connection that resumes an earlier one shows its certificate no more, and OpenSSL does not look again."""
        shown = tls.getpeercert()
        if shown and ssl.cert_time_to_seconds(str(shown["notAfter"])) < self._now():
            raise ssl.SSLCertVerificationError("the certificate has run out since")

    def _send(self, below: asyncio.Transport) -> None:
        if self._outgoing.pending:
            below.write(self._outgoing.read())

    def _hand_on(self, below: asyncio.Transport, tls: ssl.SSLObject) -> None:
        self._leave()
        connection = EncryptedConnection(below, tls, self._incoming, self._outgoing)
        below.set_protocol(connection)
        below.resume_reading()
        connection.begin(self._make())
