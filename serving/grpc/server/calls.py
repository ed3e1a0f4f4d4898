"""One call: from the stream's data to the method's handler, and back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import DecodeError, Message

from tiercel.core.traces import RequestSpan
from tiercel.serving.access.callers import Caller
from tiercel.serving.grpc.server import wire
from tiercel.serving.grpc.server.assembler import Assembler, no_room
from tiercel.serving.grpc.server.wire import CallError, Metadata, Status
from tiercel.serving.http2.frames import CANCEL
from tiercel.serving.http2.streams import Budget, Stream

_logger = logging.getLogger(__name__)

_from_bytes = int.from_bytes
# Messages of a stream's answer that may wait for the caller to take them, in bytes; beyond, it is broken off.
_MAX_WAITING = 16 * 1024 * 1024
_NOT_ONE = CallError(Status.UNIMPLEMENTED, "the method takes exactly one request")


@dataclass(frozen=True, slots=True)
class Method:
    """A method that may be called."""

    request: type[Message]  # type of its requests
    handle: Callable[[Any, Call], None]  # called with each request; answers now or later, through the call
    # What makes a request of its bytes, if that is not the type; a CallError says how the call ends instead.
    parse: Callable[[bytes], Any] | None = None
    streaming: bool = False  # whether the caller may send any number of requests. ``handle`` is then called for each
    # With ``streaming``: called when the caller sends no more; finishes the call now or later.
    on_end: Callable[[Call], None] | None = None


@dataclass(frozen=True, slots=True)
class CallHead:
    """What a request's header fields mean; calls may share one."""

    method: Method  # what is called
    timeout: float | None  # seconds in which the answer is of use, or None
    compressed: bool  # whether requests may be compressed
    metadata: Metadata  # what the caller sent along
    authorization: bytes = b""  # what of it says who calls; empty for nothing


class Owner(Protocol):
    """The connection, as a call sees it."""

    budget: Budget
    max_message_bytes: int
    clock: Callable[[], float]
    caller: Caller

    def respond(self, stream: Stream, head: bytes, body: bytes, trailers: bytes) -> None:
        """Answer as a whole."""

    def send_headers(self, stream: Stream, block: bytes, *, ended: bool) -> None:
        """Send a header block."""

    def send_data(self, stream: Stream, data: bytes) -> None:
        """Send a part of the answer."""

    def end(self, stream: Stream, trailers: bytes) -> None:
        """End the answer."""

    def reset(self, stream: Stream, code: int) -> None:
        """Break the stream off."""

    def call_done(self) -> None:
        """A call is over."""


class Call:
    """One call of a method.

    Attributes:
        head: What was called and how.
        arrived: When its last bytes so far were read, in seconds of ``time.perf_counter``.
        is_done: It was answered, or nobody waits for the answer any more.
        on_cancel: Called at most once, when the caller gives up before the answer is complete; or None.
        on_leave: Called when the server leaves, for calls that would go on for ever; or None.
        span: What is traced of it; None for nothing.
    """

    __slots__ = (
        "_assembler", "_begun", "_deadline", "_held", "_owner", "_stream", "_timer", "arrived", "head", "is_done",
        "on_cancel", "on_leave", "span",
    )  # fmt: skip

    def __init__(self, owner: Owner, stream: Stream, head: CallHead, arrived: float) -> None:
        self._owner = owner
        self._stream = stream
        self._assembler: Assembler | None = None
        self._begun = False
        self._deadline = None if head.timeout is None else arrived + head.timeout
        self._held: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.head = head
        self.arrived = arrived
        self.is_done = False
        self.on_cancel: Callable[[], None] | None = None
        self.on_leave: Callable[[], None] | None = None
        self.span: RequestSpan | None = None
        stream.may_be_slow = head.method.streaming

    @property
    def caller(self) -> Caller:
        """Who is at the other end."""
        return self._owner.caller

    def set_time_limit(self) -> None:
        """End the call at its deadline; for those whose handler does not do it in another way."""
        remaining = self.remaining()
        if remaining is not None:
            self._timer = asyncio.get_running_loop().call_later(remaining, self._expire)

    def _expire(self) -> None:
        self._break_off(Status.DEADLINE_EXCEEDED, "the call's time is over")

    def _break_off(self, status: Status, message: str) -> None:
        """End the call for a reason that its handler does not know."""
        cancel = self.on_cancel
        self.finish(status, message)
        if cancel is not None:
            cancel()

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None for no deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - self._owner.clock())

    def answer(self, message: bytes) -> None:
        """The one answer there is, and success."""
        if self.is_done:
            return
        self._finish()
        self._owner.respond(self._stream, wire.HEAD, wire.message_frame(message), wire.OK_TRAILERS)

    def send(self, message: bytes) -> None:
        """One of many answers."""
        if self.is_done:
            return
        if not self._begun:
            self._begun = True
            self._owner.send_headers(self._stream, wire.HEAD, ended=False)
        self._owner.send_data(self._stream, wire.message_frame(message))
        if self._stream.reserved > _MAX_WAITING and not self.is_done:
            self._owner.reset(self._stream, CANCEL)
            self.on_closed()

    def finish(self, status: Status = Status.OK, message: str = "", details: bytes = b"") -> None:
        """No more answers; ``details`` are a ``google.rpc.Status`` for the caller's library."""
        if self.is_done:
            return
        self._finish("" if status is Status.OK else f"{status.name}: {message}")
        if self._begun:
            self._owner.end(self._stream, wire.trailers(status, message, details))
        else:
            self._owner.send_headers(self._stream, wire.trailers_only(status, message, details), ended=True)

    def on_data(self, data: bytes, *, ended: bool) -> None:
        """HTTP/2: a part of the requests."""
        if self.is_done:
            return
        # The usual case: one request, whole, in one frame.
        if ended and self._assembler is None and len(data) >= 5 and not data[0] and not self.head.method.streaming:
            size = len(data) - 5
            if _from_bytes(data[1:5], "big") == size <= self._owner.max_message_bytes:
                self._handle(data[5:])
                return
        try:
            self._assemble(data, ended=ended)
        except CallError as error:
            self._break_off(error.status, error.message)

    def on_closed(self) -> None:
        """HTTP/2: the caller gave up, or the connection is gone."""
        if not self.is_done:
            cancel = self.on_cancel
            self._finish("the caller went away before it was answered")
            if cancel is not None:
                cancel()

    def on_drained(self) -> None:
        """HTTP/2: all answers so far are sent."""

    def on_slow(self) -> None:
        """HTTP/2: the request takes too long to arrive."""
        self._break_off(Status.DEADLINE_EXCEEDED, "the request did not arrive in time")

    def _assemble(self, data: bytes, *, ended: bool) -> None:
        method = self.head.method
        if self._assembler is None:
            self._assembler = Assembler(self._owner.max_message_bytes, self.head.compressed, self._owner.budget)
        messages = self._assembler.feed(data)
        if method.streaming:
            for message in messages:
                if not self.is_done:
                    self._handle(message)
        else:
            self._hold(messages)
        if not ended or self.is_done:
            return
        if not self._assembler.is_between_messages:
            raise CallError(Status.INTERNAL, "the request is cut off")
        if method.on_end is not None:
            method.on_end(self)
        elif not method.streaming:
            if self._held is None:
                raise _NOT_ONE
            self._handle(self._held)

    def _hold(self, messages: list[bytes]) -> None:
        """The one request waits for the stream's end, which shows that it is the only one."""
        if not messages:
            return
        if self._held is not None or len(messages) > 1:
            raise _NOT_ONE
        if not self._owner.budget.reserve(len(messages[0])):
            raise no_room()
        self._held = messages[0]

    def _handle(self, data: bytes) -> None:
        method = self.head.method
        try:
            request = method.request.FromString(data) if method.parse is None else method.parse(data)
        except CallError as error:
            self._break_off(error.status, error.message)
            return
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            self._break_off(Status.INVALID_ARGUMENT, f"the message is not a well-formed {name}")
            return
        try:
            method.handle(request, self)
        except Exception:  # the border: one call's defect is logged and told, and never ends the server
            _logger.exception("A gRPC call failed")
            self._break_off(Status.INTERNAL, "the server failed; its log says more")

    def _finish(self, error: str = "") -> None:
        self.is_done = True
        if self.span is not None:
            self.span.end(error)
        self.on_cancel = self.on_leave = None
        if self._timer is not None:
            self._timer.cancel()
        if self._assembler is not None:
            self._assembler.forget()
            if self._held is not None:
                self._owner.budget.release(len(self._held))
                self._held = None
        self._owner.call_done()


class InnerCall(Call):
    """One that is no call of its own on a connection: another server handed it on, or it is a request of a stream.

    Args:
        head: What is called.
        caller: Who asks.
        arrived: When it came, in seconds of ``time.perf_counter``.
    """

    __slots__ = ("_asked_by",)

    def __init__(self, head: CallHead, caller: Caller, arrived: float) -> None:
        self._asked_by = caller
        self._begun = False
        self._timer = None
        self._deadline = None
        self.arrived = arrived
        self.head = head
        self.is_done = False
        self.on_cancel = self.on_leave = self.span = None

    @property
    def caller(self) -> Caller:
        """See :attr:`Call.caller`."""
        return self._asked_by

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.on_closed()

    def _finish(self, error: str = "") -> None:
        self.is_done = True
        if self.span is not None:
            self.span.end(error)
        self.on_cancel = None
        if self._timer is not None:
            self._timer.cancel()
