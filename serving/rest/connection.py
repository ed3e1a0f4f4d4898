"""One HTTP connection: requests are answered one after the other, in the order in which they arrived."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from http import HTTPStatus
from typing import cast

from tiercel.core.errors import CapacityExceededError, TiercelError
from tiercel.serving.access.callers import NOBODY, caller_of
from tiercel.serving.connections.crowding import Activity, Doing, peer_of
from tiercel.serving.connections.listening import Connections
from tiercel.serving.rest.messages import (
    ByteBudget,
    Handler,
    HttpRefusedError,
    HttpRequest,
    HttpResponse,
    HttpStream,
    closing,
    error_response,
)
from tiercel.serving.rest.quick_receiver import QuickReceiver
from tiercel.serving.rest.receiver import HttpLimits
from tiercel.serving.routing.calls import Cancellable

_logger = logging.getLogger(__name__)

_LINGER_SECONDS = 2.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(asyncio.Protocol):
    """Reads requests, has them handled, writes answers.

    Reading pauses while requests wait, and nothing is handled while the caller does not take its answers, so what a
    connection holds is bounded by one read and one answer.

    Args:
        handler: Gets each request and a function to answer it with, which must be called exactly once.
        connections: All open connections; this one enters and leaves by itself.
    """

    def __init__(
        self, handler: Handler, limits: HttpLimits, budget: ByteBudget, connections: Connections[HttpConnection]
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._budget = budget
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver = QuickReceiver(limits, budget)
        self._caller = NOBODY
        self._current: HttpRequest | None = None
        self._work: Cancellable | None = None
        self._advancing = False
        self._writable = True
        self._reading = True
        self._draining = False
        self._last_answer = False
        self._lingering = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._caller = caller_of(transport)
        self._expect_within(self._limits.idle_timeout)
        has_room = self._connections.make_room(self._limits.connections, self._loop.time())
        self._connections.add(self)
        if not has_room:
            message = "the server has as many connections as it may; try again later"
            self._receiver.refuse(CapacityExceededError(message))
            self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone; what is being done for it is dropped, or answered into nothing."""
        self._drop_work()
        self._connections.leave(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [item for item in self._receiver.arrived if isinstance(item, HttpRequest)]
        self._budget.release(sum(item.reserved for item in waiting))
        self._receiver.arrived.clear()
        self._receiver.forget()
        self._receiver.deaf = True

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the caller."""
        receiver, now = self._receiver, time.perf_counter()
        if self._current is None and self._writable:
            request = receiver.whole(data, now)
            if request is not None:
                self._handle(request)
                return
        was_receiving = receiver.receiving
        receiver.feed(data, now)
        self._advance()
        if receiver.receiving:
            if not was_receiving:
                self._expect_within(self._limits.read_timeout)
            self._continue_if_due()

    def eof_received(self) -> bool:
        """asyncio: the caller sends no more. One that went away looks the same, so what can be dropped is.

        Whatever cannot be dropped is answered still.
        """
        if self._drop_work():
            return False
        self._receiver.forget()
        self._receiver.deaf = True
        busy = self._current is not None or bool(self._receiver.arrived)
        self._draining = True
        return busy and not self._lingering

    def pause_writing(self) -> None:
        """asyncio: the caller does not take its answers."""
        self._writable = False
        self._expect_within(self._limits.read_timeout)

    def resume_writing(self) -> None:
        """asyncio: it took them."""
        self._writable = True
        self._expect_within(self._limits.idle_timeout)
        self._advance()

    def close_with_next_answer(self) -> None:
        """Tell the caller with the next answer that the connection ends; it may still send the request for it."""
        self._last_answer = True

    def drain(self) -> None:
        """Close as soon as the request that is being handled, or has begun to arrive, is answered."""
        self._draining = True
        receiver = self._receiver
        busy = self._current is not None or receiver.arrived or receiver.receiving
        if not busy and self._transport is not None:
            self._transport.close()

    def activity(self) -> Activity:
        """See :meth:`.Guest.activity`."""
        transport = self._transport
        peer = peer_of(transport.get_extra_info("peername")) if transport is not None else ""
        limits, receiver = self._limits, self._receiver
        if not self._writable or receiver.receiving:
            return Activity(peer, Doing.ARRIVING, self._deadline - limits.read_timeout)
        if self._current is not None or receiver.arrived:
            return Activity(peer, Doing.BUSY, self._deadline)
        return Activity(peer, Doing.NOTHING, self._deadline - limits.idle_timeout)

    def give_way(self) -> None:
        """See :meth:`.Guest.give_way`."""
        if self._transport is not None and self._writable:
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def _advance(self) -> None:
        """Handle what has arrived, as far as possible now."""
        if self._advancing:
            return
        self._advancing = True
        arrived = self._receiver.arrived
        try:
            while arrived and self._current is None and self._writable and self._transport is not None:
                item = arrived.popleft()
                if isinstance(item, TiercelError):
                    self._write(error_response(item), None, keep_alive=False)
                    break
                self._handle(item)
        finally:
            self._advancing = False
        self._read_if(not arrived)

    def _handle(self, request: HttpRequest) -> None:
        self._current = request
        request.caller = self._caller
        work = self._handler(request, partial(self._answer, request))
        if self._current is request:
            self._work = work

    def _answer(self, request: HttpRequest, response: HttpResponse | HttpStream | bytes) -> None:
        if self._current is not request:
            _logger.error("A request was answered twice: %r %r", request.method, request.target)
            return
        keep_alive = request.head.keep_alive and not (self._draining or self._last_answer)
        if isinstance(response, HttpStream):
            self._begin_stream(request, response, keep_alive and not request.head.is_http_10)
            return
        self._forget_current(request)
        self._write(response, request, keep_alive)
        self._go_on()

    def _begin_stream(self, request: HttpRequest, stream: HttpStream, keep_alive: bool) -> None:
        """Send what comes, part by part; the request is the current one until the end."""
        is_http_10 = request.head.is_http_10

        def write(part: bytes) -> None:
            if self._current is request and self._transport is not None:
                self._transport.write(part if is_http_10 else HttpStream.framed(part))

        def end() -> None:
            if self._current is not request or self._transport is None:
                return
            self._forget_current(request)
            self._ended(self._transport, b"" if is_http_10 else HttpStream.framed(b""), keep_alive)
            self._go_on()

        if self._transport is not None:
            self._transport.write(stream.head(is_http_10=is_http_10, keep_alive=keep_alive))
        stream.begin(write, end)

    def _forget_current(self, request: HttpRequest) -> None:
        self._current = self._work = None
        self._budget.release(request.reserved)

    def _go_on(self) -> None:
        """With what came while a request was answered."""
        receiver = self._receiver
        if receiver.arrived or not self._reading:
            self._advance()
        if receiver.continue_due:
            self._continue_if_due()

    def _drop_work(self) -> bool:
        """Drop what is being done, if that is possible; returns whether it was."""
        if self._work is None or self._current is None:
            return False
        self._work.cancel()
        self._budget.release(self._current.reserved)
        self._current = self._work = None
        return True

    def _write(self, response: HttpResponse | bytes, request: HttpRequest | None, keep_alive: bool) -> None:
        transport = self._transport
        if transport is None:
            return
        if isinstance(response, bytes):
            data = response if keep_alive else closing(response)
        else:
            data = response.encode(request, keep_alive)
        self._ended(transport, data, keep_alive)

    def _ended(self, transport: asyncio.Transport, data: bytes, keep_alive: bool) -> None:
        """Send the end of an answer."""
        transport.write(data)
        if keep_alive:
            self._deadline = self._loop.time() + self._limits.idle_timeout
        else:
            self._linger(transport)

    def _linger(self, transport: asyncio.Transport) -> None:
        """Close for writing, but read on for a moment: closing on unread bytes would reset what was just sent."""
        self._receiver.forget()
        self._receiver.deaf = True
        self._receiver.arrived.clear()
        self._lingering = True
        if self._draining or not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        self._expect_within(_LINGER_SECONDS)

    def _continue_if_due(self) -> None:
        receiver = self._receiver
        if receiver.continue_due and self._current is None and not receiver.arrived and self._transport is not None:
            receiver.continue_due = False
            self._transport.write(_CONTINUE)

    def _read_if(self, wanted: bool) -> None:
        if wanted is self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _expect_within(self, seconds: float) -> None:
        """Something has to happen within this time. A later deadline than the timer's is met when the timer fires."""
        self._deadline = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        waiting = self._deadline - self._loop.time()
        if waiting > 0.001:
            self._expect_within(waiting)
        elif self._lingering or not self._writable:
            self._transport.abort()
        elif self._current is not None:  # the caller is not the one who is slow
            self._expect_within(self._limits.idle_timeout)
        elif self._receiver.receiving:
            seconds = self._limits.read_timeout
            self._receiver.refuse(
                HttpRefusedError(HTTPStatus.REQUEST_TIMEOUT, f"the request did not arrive within {seconds:g} seconds")
            )
            self._advance()
        else:
            self._transport.close()
