"""From bytes to whole HTTP requests: httptools' events, and the limits on what they may add up to. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from http import HTTPStatus

import httptools

from tiercel.core.errors import (
    CapacityExceededError,
    InvalidRequestError,
    TiercelError,
    TooLargeError,
)
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import ByteBudget, HttpRefusedError, HttpRequest
from tiercel.serving.rest.recent import Recent


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a connection may do. Sizes in bytes, times in seconds."""

    header_bytes: int  # largest request line and headers
    body_bytes: int  # largest body
    connections: int  # connections at the same time
    idle_timeout: float  # silence after which a connection is closed
    read_timeout: float  # time in which a request must have arrived, and an answer must have been taken


class Receiver:
    """Collects requests from bytes; what cannot be answered as a request becomes an error, after which it is deaf.

    Attributes:
        arrived: Requests that have arrived, and at most one error as the last; the connection takes them out.
        receiving: A request has begun to arrive and is not whole yet.
        continue_due: The caller waits for "100 Continue" before it sends the body.
        deaf: Nothing that arrives is of interest any more.
    """

    __slots__ = (
        "_body", "_budget", "_fed", "_head", "_header_bytes", "_headers", "_limits", "_now", "_parser", "_recent",
        "_reserved", "_since", "_target", "arrived", "continue_due", "deaf", "receiving",
    )  # fmt: skip

    def __init__(self, limits: HttpLimits, budget: ByteBudget) -> None:
        self._limits = limits
        self._budget = budget
        self._parser = httptools.HttpRequestParser(self)
        self._recent = Recent()
        self.arrived: deque[HttpRequest | TiercelError] = deque()
        self.receiving = False
        self.continue_due = False
        self.deaf = False
        self._reserved = 0
        self._now = 0.0
        self._since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: bytes | bytearray = b""
        self._head: Head | None = None
        self._header_bytes = 0
        self._fed = 0
        self._reserved = 0

    def feed(self, data: bytes, now: float = 0.0) -> None:
        """Take bytes from the network, read at ``now``, seconds as ``time.perf_counter`` has them."""
        if self.deaf:
            return
        self._now = now
        unfinished = self._headers if self.receiving and self._head is None else None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.deaf = True  # the request is answered as plain HTTP, what follows it is another protocol
        except httptools.HttpParserError as error:
            self.refuse(InvalidRequestError(f"this is not well-formed HTTP/1.1: {error}"))
            return
        if self.receiving and self._head is None and self._headers is unfinished:
            # The parser tells of a header when it is whole; until then only what was fed can be counted.
            self._fed += len(data)
            self._check_header_bytes()

    def refuse(self, error: TiercelError) -> None:
        """Answer with an error after what has arrived, and listen no more."""
        if not self.deaf:
            self.deaf = True
            self.arrived.append(error)
            self.forget()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self.refuse(HttpRefusedError(status, message))

    def forget(self) -> None:
        """Give up the request that is arriving."""
        self._budget.release(self._reserved)
        self.receiving = False
        self.continue_due = False
        self._begin()

    def on_message_begin(self) -> None:
        """httptools: a request begins."""
        if not self.deaf:
            self._begin()
            self._since = self._now
            self.receiving = True

    def on_url(self, part: bytes) -> None:
        """httptools: a part of the target."""
        if self.deaf:
            return
        self._target += part
        self._header_bytes += len(part)
        self._check_header_bytes()

    def on_header(self, name: bytes, value: bytes | None) -> None:
        """httptools: a header, or a trailer, which is of no use here."""
        if self.deaf:
            return
        value = value or b""
        self._header_bytes += len(name) + len(value)
        self._check_header_bytes()
        if self._head is None:
            add_header(self._headers, name, value)

    def on_headers_complete(self) -> None:
        """httptools: the body is next."""
        if self.deaf:
            return
        head = self._head = head_from(self._parser, self._target, self._headers, self._header_bytes)
        self._header_bytes = 0  # counts trailers from here
        headers = self._headers
        if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            self._refuse(HTTPStatus.NOT_IMPLEMENTED, "only the transfer coding 'chunked' is understood")
            return
        if head.length is not None and not self._grow(head.length):
            return
        expect = headers.get(b"expect")
        if expect is not None and not head.is_http_10:
            if expect.lower() != b"100-continue":
                message = "the only Expect header that is understood is '100-continue'"
                self._refuse(HTTPStatus.EXPECTATION_FAILED, message)
                return
            self.continue_due = True

    def on_body(self, data: bytes) -> None:
        """httptools: a part of the body."""
        if self.deaf:
            return
        self.continue_due = False
        size = len(self._body) + len(data)
        if size > self._reserved and not self._grow(size):
            return
        if not self._body:
            self._body = data
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += data

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        if self.deaf or self._head is None:
            return
        self._complete(self._head)

    def _complete(self, head: Head) -> None:
        self.arrived.append(HttpRequest(head, self._body, self._reserved, self._since, self._recent))
        self.receiving = False
        self.continue_due = False
        self._begin()  # also gives up the reservation: it is the request's now
        self.deaf = not head.keep_alive

    def _check_header_bytes(self) -> None:
        if max(self._header_bytes, self._fed) > self._limits.header_bytes:
            message = f"the request's headers are over {self._limits.header_bytes} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)

    def _grow(self, size: int) -> bool:
        """Make sure that a body of ``size`` bytes is allowed."""
        limits = self._limits
        if size > limits.body_bytes:
            self.refuse(TooLargeError(f"the request's body is over {limits.body_bytes} bytes"))
            return False
        if not self._budget.reserve(size - self._reserved):
            message = "the server holds as many request bodies as it may; try again in a moment"
            self.refuse(CapacityExceededError(message))
            return False
        self._reserved = size
        return True


def add_header(headers: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """Put a header into ``headers`` as :class:`Head` has them."""
    name, value = name.lower(), value.rstrip(b" \t")
    earlier = headers.get(name)
    headers[name] = value if earlier is None else earlier + b", " + value


def head_from(parser: httptools.HttpRequestParser, target: bytes, headers: dict[bytes, bytes], size: int) -> Head:
    """What ``parser`` knows when it has read a head."""
    length = headers.get(b"content-length")
    keep_alive = parser.should_keep_alive() and not parser.should_upgrade()
    is_http_10 = parser.get_http_version() == "1.0"
    return Head(
        parser.get_method(), target, headers, keep_alive, is_http_10, None if length is None else int(length), size
    )
