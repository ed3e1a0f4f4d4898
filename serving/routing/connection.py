"""One connection to another server: a request at a time, by HTTP/1.1, and whatever comes back within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, cast

import httptools

from tiercel.core.errors import CapacityExceededError, DeadlineExceededError
from tiercel.serving.routing.silence import Hearing

HEADER_BYTES: Final = 32 * 1024
"""The most that stands before the body of an answer."""
_SMALL_BYTES: Final = 64 * 1024
_STATUSES: Final = frozenset(status.value for status in HTTPStatus if status.value >= 200)


class PeerLostError(Exception):
    """The other server did not answer, or said what is no answer; ``begun`` says whether an answer had begun."""

    def __init__(self, reason: str, *, begun: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.begun = begun


@dataclass(slots=True)
class Answer:
    """What another server answered."""

    status: int  # HTTP status code
    headers: Mapping[bytes, bytes]  # values by name in small letters; of repeated ones the last
    body: bytes | bytearray  # its bytes


@dataclass(slots=True)
class Room:
    """Bytes of answers that may be held at a time, of all connections together."""

    total: int
    used: int = field(default=0)


class PeerConnection(asyncio.Protocol):
    """A connection that is kept.

    Args:
        hearing: Told whenever something comes back.

    Attributes:
        is_open: Whether it can be asked something.
        idle_since: When its last answer was complete, seconds of the event loop's clock.
    """

    def __init__(self, room: Room, hearing: Hearing) -> None:
        self._room = room
        self._hearing = hearing
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self.is_open = False
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
        self._held = 0
        self._status = 0
        self._before_body = 0
        self._has_begun = False

    async def ask(self, head: bytes, body: bytes | bytearray, deadline: float) -> Answer:
        """Send a request and wait for its answer.

        Args:
            head: Request line and headers.
            body: What follows them.
            deadline: When the answer is of no use any more, seconds of the event loop's clock.

        Raises:
            PeerLostError: There is no answer.
            DeadlineExceededError: It would come too late.
            CapacityExceededError: There is no room for it.
        """
        if self._transport is None:
            raise PeerLostError("its connection ended", begun=False)
        self._begin()
        waiting = self._waiting = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._expire)
        is_answered = False
        try:
            if len(body) > _SMALL_BYTES:
                self._transport.write(head)
                self._transport.write(body)
            else:  # in one piece, which is read at once
                self._transport.write(head + body)
            answer: Answer = await waiting
            is_answered = True
            return answer
        finally:
            timer.cancel()
            if not is_answered:  # it failed, or its caller went away
                self.close()
            self._waiting = None
            self._room.used -= self._held
            self._held = 0

    def close(self) -> None:
        """Break it off."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        self.is_open = False
        self._transport = None
        self._fail(PeerLostError(f"its connection ended{f' ({exc})' if exc else ''}", begun=self._has_begun))

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the other server."""
        self._hearing.heard(self._loop.time())
        if self._waiting is None or self._waiting.done():
            self.close()  # nobody asked
            return
        self._has_begun = True
        if not self._status:
            self._before_body += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(PeerLostError(f"its answer is not well-formed HTTP/1.1 ({error})", begun=True))
            return
        if not self._status and self._before_body > HEADER_BYTES:
            self._fail(PeerLostError(f"its answer's headers are over {HEADER_BYTES} bytes", begun=True))

    def eof_received(self) -> bool:
        """asyncio: the other server sends no more."""
        return False

    # httptools

    def on_header(self, name: bytes, value: bytes | None) -> None:
        """httptools: a header, or a trailer."""
        if not self._status:
            self._headers[name.lower()] = (value or b"").strip()

    def on_headers_complete(self) -> None:
        """httptools: the body is next."""
        self._status = self._parser.get_status_code()
        length = self._headers.get(b"content-length", b"")
        if length.isdigit() and len(length) < 16:
            self._reserve(int(length))

    def on_body(self, data: bytes) -> None:
        """httptools: a part of the body."""
        self._body += data
        if len(self._body) > self._held:
            self._reserve(len(self._body))

    def on_message_complete(self) -> None:
        """httptools: the answer is whole."""
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        if self._status not in _STATUSES:
            self._fail(PeerLostError(f"it answered with status {self._status}", begun=True))
            return
        self.is_open = self.is_open and self._parser.should_keep_alive()
        self.idle_since = self._loop.time()
        waiting.set_result(Answer(self._status, self._headers, self._body))

    def _reserve(self, size: int) -> None:
        more = size - self._held
        if self._room.used + more > self._room.total:
            message = "the server holds as many answers of others as it may; try again in a moment"
            self._fail(CapacityExceededError(message))
            return
        self._room.used += more
        self._held = size

    def _expire(self) -> None:
        self._fail(DeadlineExceededError("the node that answers for this model did not answer in time"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
            self.close()
