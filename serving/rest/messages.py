"""HTTP requests and answers as the routes see them."""

from __future__ import annotations

import contextlib
import http
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import orjson

from tiercel.core.errors import (
    CapacityExceededError,
    InvalidRequestError,
    NotAuthenticatedError,
    RateExceededError,
    TiercelError,
    UnavailableError,
)
from tiercel.core.rates import retry_after_seconds
from tiercel.serving.access.callers import NOBODY, Caller
from tiercel.serving.rest.head import Head
from tiercel.serving.routing.calls import Cancellable

if TYPE_CHECKING:
    from tiercel.serving.rest.recent import Recent

_logger = logging.getLogger(__name__)

JSON = b"application/json"
BINARY = b"application/octet-stream"
ACCEPTED_ENCODINGS = b"Accept-Encoding: gzip, deflate, identity\r\n"
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
    if status.value >= 200
}


class HttpRefusedError(TiercelError):
    """A request that is wrong as HTTP, which says nothing about inference.

    Args:
        headers: What the answer says beside it, in whole lines.
    """

    code = "http_refused"
    grpc_status = "UNIMPLEMENTED"

    def __init__(self, status: http.HTTPStatus, message: str, headers: bytes = b"") -> None:
        super().__init__(message)
        self.http_status = status.value
        self.headers = headers


@dataclass(slots=True)
class HttpRequest:
    """A request that has arrived as a whole."""

    head: Head  # request line and headers
    body: bytes | bytearray  # may be a buffer that the connection does not touch any more
    reserved: int = 0  # bytes of the shared budget that the body holds
    arrived: float = 0.0  # when its first byte was read, as ``time.perf_counter`` has it; 0 for unknown
    recent: Recent | None = None  # what the connection's last request was like; None where nobody keeps that
    caller: Caller = NOBODY  # who sent it

    @property
    def method(self) -> bytes:
        """In capital letters."""
        return self.head.method

    @property
    def target(self) -> bytes:
        """Path and query, still percent-encoded."""
        return self.head.target

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Values by name in small letters; of a repeated header the values are joined by a comma."""
        return self.head.headers

    @property
    def authorization(self) -> bytes:
        """What the caller shows; empty for nothing."""
        return self.head.headers.get(b"authorization", b"")


@dataclass(slots=True)
class HttpResponse:
    """An answer."""

    status: int = 200  # HTTP status code
    body: bytes = b""  # its bytes
    content_type: bytes = JSON  # media type of the body
    headers: bytes = b""  # further header lines, each ending in CRLF

    def encode(self, request: HttpRequest | None, keep_alive: bool) -> bytes:
        """The bytes to send.

        Args:
            request: What it answers, or None when that was not even readable.
            keep_alive: Whether the connection stays open.
        """
        connection = b""
        if not keep_alive:
            connection = b"Connection: close\r\n"
        elif request is not None and request.head.is_http_10:
            connection = b"Connection: keep-alive\r\n"
        return b"%bContent-Type: %b\r\nContent-Length: %d\r\n%b%b\r\n%b" % (
            _STATUS_LINES[self.status],
            self.content_type,
            len(self.body),
            self.headers,
            connection,
            b"" if request is not None and request.method == b"HEAD" else self.body,
        )


class HttpStream:
    """An answer that begins before its end is known; whoever makes it sends parts until the end.

    Parts are small and few, and bounded by what was asked for: what a slow caller has not taken waits in memory, until
    the connection's patience ends.

    Args:
        content_type: Media type of the body.

    Attributes:
        on_end: Told at the end why it is not complete, or an empty text; None for nobody.
    """

    __slots__ = ("_end", "_write", "content_type", "on_end")

    status = 200

    def __init__(self, content_type: bytes) -> None:
        self.content_type = content_type
        self._write: Callable[[bytes], None] | None = None
        self._end: Callable[[], None] | None = None
        self.on_end: Callable[[str], None] | None = None

    def begin(self, write: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """The connection takes parts from now on."""
        self._write, self._end = write, end

    def send(self, part: bytes) -> None:
        """Send a part, which is not empty; after the caller left it goes nowhere."""
        if self._write is not None:
            self._write(part)

    def end(self, error: str = "") -> None:
        """That was all; ``error``: why it is not complete."""
        if self.on_end is not None:
            self.on_end(error)
        if self._end is not None:
            self._end()
        self._write = self._end = None

    @staticmethod
    def framed(part: bytes) -> bytes:
        """A part as HTTP/1.1 has it (RFC 9112, 7.1); an empty one is the end."""
        return b"%x\r\n%b\r\n" % (len(part), part)

    def head(self, *, is_http_10: bool, keep_alive: bool) -> bytes:
        """Status line and headers; the end is told by HTTP/1.1's chunks, or by the end of the connection."""
        lines = b"" if is_http_10 else b"Transfer-Encoding: chunked\r\n"
        lines += b"" if keep_alive else b"Connection: close\r\n"
        return b"%bContent-Type: %b\r\nCache-Control: no-store\r\n%b\r\n" % (
            _STATUS_LINES[200],
            self.content_type,
            lines,
        )


# Bytes are a whole answer of a few kilobytes at most, in the form that HTTP/1.1 connections get that stay open.
Respond = Callable[[HttpResponse | HttpStream | bytes], None]
# Gives what to cancel when the caller goes away; then there is no answer. None: the answer comes, or came.
Handler = Callable[[HttpRequest, Respond], Cancellable | None]


def closing(answer: bytes) -> bytes:
    """An answer that stays open, as the last one of its connection."""
    return answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


@lru_cache(64)
def refusal_bytes(message: str) -> bytes:
    """The whole answer to a request that is refused for want of room; there are many at once."""
    return error_response(CapacityExceededError(message)).encode(None, keep_alive=True)


def json_response(content: object, status: int = 200) -> HttpResponse:
    """An answer in JSON."""
    return HttpResponse(status, orjson.dumps(content))


def error_response(error: TiercelError) -> HttpResponse:
    """The answer to a request that failed."""
    headers = b""
    if isinstance(error, CapacityExceededError | UnavailableError):
        headers = b"Retry-After: 1\r\n"
    elif isinstance(error, NotAuthenticatedError):
        headers = b"WWW-Authenticate: Bearer\r\n"
    elif isinstance(error, RateExceededError):
        headers = b"Retry-After: %d\r\n" % retry_after_seconds(error.seconds)
    elif isinstance(error, HttpRefusedError):
        headers = error.headers
    return HttpResponse(error.http_status, orjson.dumps({"error": error.message}), JSON, headers)


def answer_to_defect(what: str, error: Exception) -> HttpResponse:
    """The answer when the fault is the server's, whose log says more: that ``what`` failed, and of what."""
    _logger.error("%s failed", what, exc_info=error)
    return error_response(TiercelError("the server failed; its log says more"))


@dataclass(slots=True)
class ByteBudget:
    """Bytes that all connections together may hold."""

    total: int
    used: int = field(default=0)

    def reserve(self, amount: int) -> bool:
        """Take ``amount`` bytes if they are there."""
        if self.used + amount > self.total:
            return False
        self.used += amount
        return True

    def release(self, amount: int) -> None:
        """Give back ``amount`` bytes."""
        self.used -= amount


def since_of(target: bytes) -> float:
    """The ``since`` of a target such as ``/v2/usage?since=SECONDS``; 0 where nothing is said.

    Raises:
        InvalidRequestError: The query is another one.
    """
    values = parse_qs(target.partition(b"?")[2].decode("ascii", "replace"), keep_blank_values=True)
    with contextlib.suppress(ValueError):
        since = float(values.pop("since", ["0"])[-1])
        if since >= 0 and not values:
            return since
    raise InvalidRequestError("the query must be since=SECONDS, an uptime_seconds that was answered before")
