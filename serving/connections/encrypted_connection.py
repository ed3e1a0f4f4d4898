"""TLS between a transport and a protocol that knows nothing of it, once both ends know each other.

The event loop's own TLS costs a little more for a request, several times as much where the C library gives large blocks
back at once (:mod:`tiercel.serving.memory` stops that): it makes a place of 256 KiB for each read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterable
from typing import Any, Final

_logger = logging.getLogger(__name__)

SHUTDOWN_SECONDS: Final = 2.0
"""How long the other end may take to agree that a connection is over, and to take something of what was sent before."""
_STUCK_LOOKS = 15
# What a record has at most: more would be kept for each read and be used by none.
_READ_BYTES = 16 * 1024
# Encrypted at once; what OpenSSL collects it never gives back while the connection lives.
_WRITE_BYTES = 64 * 1024
_TLS_FACTS = frozenset({"peercert", "cipher", "ssl_object", "sslcontext"})

Content = bytes | bytearray | memoryview


class EncryptedConnection(asyncio.Transport, asyncio.Protocol):
    """Decrypts what comes from the transport below for the protocol above, and encrypts what that writes.

    To the one above it is a transport as any other. ``get_extra_info("peercert")`` says who is at the other end, as
    :meth:`ssl.SSLSocket.getpeercert` has it: the tenant or node is in ``subjectAltName``. Nothing more is read while
    the other end does not take what it is sent. What it holds is one read, one record, and what the transport below
    keeps of what is not taken.

    Args:
        below: The transport; its protocol is this from now on.
        tls: Both ends have shown who they are.
        incoming: Where it reads.
        outgoing: Where it writes.
    """

    def __init__(
        self, below: asyncio.Transport, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        super().__init__()
        self._below = below
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._above: asyncio.Protocol | None = None
        self._closing = False
        self._has_peer_ended = False
        self._may_answer = True  # once the other end has sent its last
        self._is_lost = False
        self._reading = True
        self._reading_wanted = True
        self._is_taken = True
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, above: asyncio.Protocol) -> None:
        """Let a protocol talk; what came with the end of the handshake is its first."""
        self._above = above
        above.connection_made(self)
        if self._incoming.pending:
            self._take()

    # The transport below calls

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the other end."""
        if self._closing:
            return
        self._incoming.write(data)
        if self._reading:
            self._take()

    def eof_received(self) -> bool:
        """asyncio: the other end sends no more, and did not say so by TLS.

        Whoever is above has requests that say where they end, so that none is taken for whole.
        """
        if self._closing or not self._hear_end():
            self._say_goodbye()
            return False
        return True

    def pause_writing(self) -> None:
        """asyncio: the other end does not take what it is sent."""
        self._is_taken = False
        self._read_or_not()
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """asyncio: it does again."""
        self._is_taken = True
        self._read_or_not()
        if self._above is not None:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        self._closing = self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)

    # The protocol above calls

    def write(self, data: Content) -> None:
        """Send this; nothing happens once the connection is closing."""
        if self._closing or not data:
            return
        size = len(data)
        try:
            if size <= _WRITE_BYTES and self._tls.write(data) == size:
                self._below.write(self._outgoing.read())
            elif size > _WRITE_BYTES:
                self._write_in_parts(memoryview(data))
            else:  # OpenSSL takes all of what it is given, unless told otherwise
                raise ssl.SSLError("part of a record was taken")  # noqa: TRY301 - handled as what it is
        except ssl.SSLError as error:
            self._fail(error)

    def writelines(self, list_of_data: Iterable[Content]) -> None:
        """Send all of these."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what was written, say that this is the end, and wait a moment for the other end to say so too."""
        if self._closing:
            return
        self._say_goodbye()
        self._closing = True
        if self._has_peer_ended:
            self._below.close()
            return
        # To close on bytes that nobody read would reset the connection, and what was just sent might be lost.
        if not self._reading and not self._below.is_closing():
            self._reading = True
            self._below.resume_reading()
        with contextlib.suppress(OSError, RuntimeError):
            self._below.write_eof()
        self._look_after(self._below.get_write_buffer_size(), 0)

    def abort(self) -> None:
        """Close now."""
        self._closing = True
        self._below.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._closing or self._below.is_closing()

    def can_write_eof(self) -> bool:
        """Never: who says the end by TLS has closed, see :meth:`close`."""
        return False

    def pause_reading(self) -> None:
        """Bring nothing more for now."""
        self._reading_wanted = False
        self._read_or_not()

    def resume_reading(self) -> None:
        """Go on."""
        self._reading_wanted = True
        self._read_or_not()

    def is_reading(self) -> bool:
        """Whether something may be brought now."""
        return self._reading and not self.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the other end, encrypted."""
        return self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """When writing is paused and resumed."""
        return self._below.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when writing is to be paused and resumed."""
        self._below.set_write_buffer_limits(high, low)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who is above."""
        if self._above is None:
            raise RuntimeError("the connection is gone, and nobody is above it")
        return self._above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection: the names of asyncio's TLS, and those of the transport below."""
        if name not in _TLS_FACTS:
            return self._below.get_extra_info(name, default)
        if name == "peercert":
            return self._tls.getpeercert()
        if name == "cipher":
            return self._tls.cipher()
        return self._tls if name == "ssl_object" else self._tls.context

    # Between both

    def _take(self) -> None:
        """Bring up all that is whole by now."""
        ended = False
        try:
            plain = self._tls.read(_READ_BYTES)
            if not plain:
                ended = True
            elif self._incoming.pending:
                plain, ended = self._rest(plain)
        except ssl.SSLWantReadError:
            plain = b""
        except ssl.SSLError as error:
            self._fail(error)
            return
        if plain and self._above is not None:
            self._above.data_received(plain)
        if self._outgoing.pending and not self._is_lost:  # the other end changed its keys, and wants ours changed
            self._below.write(self._outgoing.read())
        if ended and not self._closing and not self._hear_end():
            self.close()

    def _rest(self, first: bytes) -> tuple[bytes, bool]:
        """All that is whole by now as one, and whether the other end says that it was the last."""
        parts, ended = [first], False
        with contextlib.suppress(ssl.SSLWantReadError):
            while self._incoming.pending and not ended:
                part = self._tls.read(_READ_BYTES)
                ended = not part
                parts.append(part)
        return b"".join(parts), ended

    def _hear_end(self) -> bool:
        """The other end sends no more; returns whether there is something to answer still."""
        if not self._has_peer_ended:
            self._has_peer_ended = True
            self._may_answer = self._above is not None and bool(self._above.eof_received())
        return self._may_answer

    def _write_in_parts(self, rest: memoryview) -> None:
        while rest:
            rest = rest[self._tls.write(rest[:_WRITE_BYTES]) :]
            self._below.write(self._outgoing.read())

    def _say_goodbye(self) -> None:
        if self._closing:
            return
        with contextlib.suppress(ssl.SSLError):  # the other end's part is missing, as a rule
            self._tls.unwrap()
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """What came is no TLS: say so, and close."""
        _logger.debug("An encrypted connection broke: %s", error)
        if self._closing:
            return
        self._closing = True
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())
        self._below.close()
        self._look_after(self._below.get_write_buffer_size(), 0)

    def _read_or_not(self) -> None:
        wanted = self._reading_wanted and self._is_taken
        if wanted is self._reading or self._closing or self._below.is_closing():
            return
        self._reading = wanted
        if not wanted:
            self._below.pause_reading()
            return
        self._below.resume_reading()
        if self._incoming.pending:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._reading and not self._closing:
            self._take()

    def _look_after(self, waiting: int, looks: int) -> None:
        """Wait for the other end as long as it still takes something of what was sent before the end."""
        self._timer = asyncio.get_running_loop().call_later(SHUTDOWN_SECONDS, self._look, waiting, looks)

    def _look(self, waiting: int, looks: int) -> None:
        now = self._below.get_write_buffer_size()
        if now == 0 or looks == _STUCK_LOOKS:
            self._below.abort()
        else:
            self._look_after(now, 0 if now < waiting else looks + 1)
