"""A stream, and what the connection and the application on top of it tell each other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from tiercel.serving.http2 import frames
from tiercel.serving.http2.requests import Request

_REMEMBERED_RESETS = 128


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """What a peer may do. Sizes in bytes, times in seconds."""

    header_bytes: int  # header fields of a request, compressed or not
    streams: int  # streams at the same time on one connection
    window: int  # bytes of bodies that a stream may send ahead; a connection may send eight times as much
    # Silence after which a connection without streams is closed, and one with streams is asked for a sign of life.
    idle_timeout: float
    # Time in which a frame, a header block, a request or a sign of life must have arrived, and in which something of an
    # answer must have been taken.
    read_timeout: float

    def settings(self) -> tuple[tuple[int, int], ...]:
        """Identifiers and values of the SETTINGS that tell a peer of them."""
        return (
            (frames.SETTINGS_MAX_CONCURRENT_STREAMS, self.streams),
            (frames.SETTINGS_INITIAL_WINDOW_SIZE, self.window),
            (frames.SETTINGS_MAX_HEADER_LIST_SIZE, self.header_bytes),
        )


class Budget(Protocol):
    """Bytes that all connections together may hold."""

    def reserve(self, amount: int) -> bool:
        """Take ``amount`` if it is there."""

    def release(self, amount: int) -> None:
        """Give ``amount`` back."""


class Handler(Protocol):
    """What the application does with one stream. Nothing is called any more once the stream is closed."""

    def on_data(self, data: bytes, *, ended: bool) -> None:
        """Some of the body; ``ended`` says that it was the last."""

    def on_closed(self) -> None:
        """The stream is gone before its answer was complete: reset, or the connection is lost."""

    def on_drained(self) -> None:
        """All that was handed over has been given to the connection."""

    def on_slow(self) -> None:
        """The request has not arrived as a whole within the time that there is; an answer may still be given."""


class Application(Protocol):
    """Gets the requests."""

    def on_request(self, stream: Stream, request: Request, *, ended: bool) -> Handler:
        """A request begins on ``stream``; if ``ended``, it has no body, and its handler is not called for one."""


class Stream:
    """One stream.

    Attributes:
        id: Its number.
        handler: What the application does with it.
        window: Bytes that the peer takes on this stream.
        ended: The peer sends no more.
        closed: Both sides are done, or it was reset.
        received: Bytes of the body so far.
        unreturned: Bytes of them that the peer was not told it may send anew.
        content_length: Bytes that the body should have, or -1.
        began: When it was opened, in seconds of the connection's clock.
        may_be_slow: The request may take its time to arrive.
        pending: Bytes that wait for the peer to take them; None for none.
        trailers: The header block that ends the answer once all of ``pending`` is sent.
        reserved: Bytes of the budget that ``pending`` holds.
    """

    __slots__ = (
        "began", "closed", "content_length", "ended", "handler", "id", "may_be_slow", "pending", "received", "reserved",
        "trailers", "unreturned", "window",
    )  # fmt: skip

    def __init__(self, number: int, window: int, content_length: int, began: float) -> None:
        self.id = number
        self.window = window
        self.content_length = content_length
        self.began = began
        self.handler: Handler | None = None
        self.ended = False
        self.closed = False
        self.received = 0
        self.unreturned = 0
        self.may_be_slow = False
        self.pending: deque[memoryview] | None = None
        self.trailers: bytes | None = None
        self.reserved = 0


class RecentResets:
    """Numbers of the last 128 streams that were reset here: until the peer reads that, it may send on them."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def add(self, number: int) -> None:
        """One more was reset."""
        if len(self._numbers) >= _REMEMBERED_RESETS:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[number] = None
