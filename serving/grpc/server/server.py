"""The asyncio side: listens, reads and writes, and finds the method that is called."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from tiercel.serving.access.callers import NOBODY, caller_of
from tiercel.serving.connections.crowding import Activity, Doing, peer_of
from tiercel.serving.connections.door import EncryptedDoor
from tiercel.serving.connections.listening import Connections, accept, read_what_is_there
from tiercel.serving.grpc.server import wire
from tiercel.serving.grpc.server.calls import Call, CallHead, Method
from tiercel.serving.grpc.server.wire import CallError, Status
from tiercel.serving.http2.connection import Connection
from tiercel.serving.http2.requests import Request
from tiercel.serving.http2.streams import Budget, Handler, Http2Limits, Stream

_logger = logging.getLogger(__name__)

_TICK = 1.0
_LINGER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """What callers may do."""

    http2: Http2Limits  # on one connection
    message_bytes: int  # largest request
    connections: int  # connections at the same time
    calls: int  # calls at the same time, on all connections together; more are refused


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a request gets that is not a call of any method: a header block that is the whole answer."""

    block: bytes


class Listener:
    """Serves methods on a listening socket.

    Args:
        methods: By path, ``/package.Service/Method``.
        budget: Bytes of requests that are not whole and of answers that wait, shared by all connections.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        limits: GrpcLimits,
        budget: Budget,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._methods = {path.encode(): method for path, method in methods.items()}
        self.limits = limits
        self.budget = budget
        self.clock = clock
        self.connections: Connections[GrpcConnection] = Connections()
        self.calls = 0
        self._listeners: list[asyncio.Server] = []
        self._doors: list[EncryptedDoor] = []
        self._ticker: asyncio.TimerHandle | None = None

    async def start(self, listening: socket.socket, door: EncryptedDoor | None = None) -> None:
        """Accept connections on a socket that listens, encrypted where there is a door; may be called again."""
        if door is None:
            self._listeners.append(await accept(self._connection, listening))
        else:
            self._listeners.append(await door.accept(self._connection, listening))
            self._doors.append(door)
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().call_later(_TICK, self._tick)

    async def stop(self, grace: float) -> None:
        """Take no new calls; those in flight, in the kernel too, get ``grace`` seconds."""
        if not self._listeners:
            return
        await read_what_is_there(self.connections)
        for listener in self._listeners:
            listener.close()
        for door in self._doors:
            await door.wait_known()
        for connection in tuple(self.connections):
            connection.leave()
        await self.connections.wait_at_most(grace)
        for connection in tuple(self.connections):
            connection.abort()
        if self._ticker is not None:
            self._ticker.cancel()

    def head_of(self, request: Request) -> CallHead | Refusal:
        """What a request calls; found out once for all requests with the same header fields."""
        known = request.meaning
        if isinstance(known, CallHead | Refusal):
            return known
        try:
            found = self._read(request)
        except CallError as error:
            found = Refusal(wire.trailers_only(error.status, error.message))
        request.meaning = found
        return found

    def _read(self, request: Request) -> CallHead | Refusal:
        if request.too_large:
            limit = self.limits.http2.header_bytes
            raise CallError(Status.RESOURCE_EXHAUSTED, f"the metadata is over {limit} bytes")
        fields = dict(request.fields)
        if request.method != b"POST":
            return Refusal(wire.http_error(405))
        if not wire.is_grpc(fields.get(b"content-type", b"")):
            return Refusal(wire.http_error(415))
        method = self._methods.get(request.path)
        if method is None:
            path = request.path[:200].decode("latin-1")
            raise CallError(Status.UNIMPLEMENTED, f"there is no method {path}")
        encoding = fields.get(b"grpc-encoding", wire.IDENTITY)
        if encoding not in wire.ENCODINGS:
            raise CallError(Status.UNIMPLEMENTED, "grpc-encoding must be identity, deflate or gzip")
        timeout = fields.get(b"grpc-timeout")
        return CallHead(
            method,
            None if timeout is None else wire.read_timeout(timeout),
            encoding != wire.IDENTITY,
            wire.read_metadata(request.fields),
            fields.get(b"authorization", b""),
        )

    def _connection(self) -> GrpcConnection:
        return GrpcConnection(self)

    def _tick(self) -> None:
        now = self.clock()
        for connection in tuple(self.connections):
            connection.tick(now)
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._tick)


class GrpcConnection(asyncio.Protocol):
    """One connection: bytes to and from the protocol's state, and calls to their methods."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.budget = listener.budget
        self.max_message_bytes = listener.limits.message_bytes
        self.clock = listener.clock
        self.caller = NOBODY
        self._arrived = self.clock()
        self._http2 = Connection(self, listener.limits.http2, listener.budget, self._arrived)
        self._sender = self._http2.sender
        self._busy = False
        self._flushing = False
        self._leaving = False
        self._closing_since: float | None = None

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self.caller = caller_of(transport)
        connections = self._listener.connections
        if not connections.make_room(self._listener.limits.connections, self._arrived):
            self._http2.refuse("the server has as many connections as it may; try again later")
        connections.add(self)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone; whatever is being computed for it is answered into nothing."""
        self._transport = None
        self._http2.lost()
        self._listener.connections.leave(self)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the caller."""
        self._arrived = self.clock()
        self._busy = True
        try:
            self._http2.receive(data)
        except Exception:  # the border: a defect costs this connection, not the server
            _logger.exception("A gRPC connection failed")
            self.abort()
        if self._leaving and self._http2.has_drained:
            self._end_long_calls()
        self._busy = False
        if self._sender.out or self._http2.closed:
            self._flush()

    def eof_received(self) -> None:
        """asyncio: the caller is gone."""

    def pause_writing(self) -> None:
        """asyncio: the caller does not take its answers, so nothing more is read from it."""
        self._sender.pause()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """asyncio: it took them."""
        self._sender.resume()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._flush()

    # The listener

    def leave(self) -> None:
        """Announce that the server leaves, and close once what is in flight is answered."""
        self._leaving = True
        self._http2.leave()
        self._flush()

    def _end_long_calls(self) -> None:
        """Once nothing is on its way any more, end the calls that would go on for ever; what they asked is answered."""
        self._leaving = False
        for stream in tuple(self._http2.streams.values()):
            if isinstance(stream.handler, Call) and stream.handler.on_leave is not None:
                stream.handler.on_leave()

    def activity(self) -> Activity:
        """See :meth:`.Guest.activity`; calls that would go on for ever are nothing that happens."""
        peer = peer_of(self._transport.get_extra_info("peername")) if self._transport is not None else ""
        handlers = [stream.handler for stream in self._http2.streams.values()]
        if not handlers:
            return Activity(peer, Doing.NOTHING, self._arrived)
        waits = self._sender.blocked or all(isinstance(each, Call) and each.on_leave is not None for each in handlers)
        return Activity(peer, Doing.ARRIVING if waits else Doing.BUSY, self._arrived)

    def give_way(self) -> None:
        """See :meth:`.Guest.give_way`."""
        self._http2.refuse("the server has as many connections as it may, and others need the place; connect again")
        self._flush()
        self._loop.call_later(_LINGER_SECONDS, self.abort)

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def tick(self, now: float) -> None:
        """It is ``now``."""
        if self._closing_since is not None:
            if now - self._closing_since > _LINGER_SECONDS:
                self.abort()
            return
        self._busy = True
        self._http2.tick(now)
        if self._leaving and self._http2.has_drained:
            self._end_long_calls()
        self._busy = False
        self._flush()

    # The protocol's state

    def on_request(self, stream: Stream, request: Request, *, ended: bool) -> Handler:
        """HTTP/2: a request begins."""
        listener = self._listener
        head = listener.head_of(request)
        if isinstance(head, Refusal):
            self._sender.headers(stream, head.block, ended=True)
            return _NOBODY
        if listener.calls >= listener.limits.calls:
            self._sender.headers(stream, _TOO_MANY_CALLS, ended=True)
            return _NOBODY
        listener.calls += 1
        call = Call(self, stream, head, self._arrived)
        if ended:
            call.on_data(b"", ended=True)
        return call

    # Calls

    def respond(self, stream: Stream, head: bytes, body: bytes, trailers: bytes) -> None:
        """A call is answered as a whole."""
        self._sender.respond(stream, head, body, trailers)
        self._flush_soon()

    def send_headers(self, stream: Stream, block: bytes, *, ended: bool) -> None:
        """A call's answer begins, or was an error."""
        self._sender.headers(stream, block, ended=ended)
        self._flush_soon()

    def send_data(self, stream: Stream, data: bytes) -> None:
        """A part of a call's answer."""
        self._sender.data(stream, data)
        # Callers send frames for each message that they read, and a stream may have any number of these.
        self._http2.abuse.earn()
        self._flush_soon()

    def end(self, stream: Stream, trailers: bytes) -> None:
        """A call's answer ends."""
        self._sender.end(stream, trailers)
        self._flush_soon()

    def reset(self, stream: Stream, code: int) -> None:
        """A call is broken off."""
        self._http2.reset(stream, code)
        self._flush_soon()

    def call_done(self) -> None:
        """A call is over."""
        self._listener.calls -= 1

    # Writing

    def _flush_soon(self) -> None:
        """Write, together with what else may be answered in this turn of the event loop."""
        if self._busy or self._flushing:
            return
        if self._http2.streams:
            self._flushing = True
            self._loop.call_soon(self._flush)
        else:
            self._flush()

    def _flush(self) -> None:
        self._flushing = False
        sender, transport = self._sender, self._transport
        if transport is None or transport.is_closing():
            return
        while sender.out:
            transport.write(sender.take())
            if sender.blocked:
                sender.pump()
        if self._http2.closed and self._closing_since is None:
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        """Close for writing, but read on for a moment: closing on unread bytes would reset what was just sent."""
        self._closing_since = self.clock()
        if self._http2.broken:
            transport.abort()
        elif transport.can_write_eof():
            transport.write_eof()
        else:  # TLS, which has an end of its own
            transport.close()


class _Nobody:
    """Handles what follows a request that was refused."""

    def on_data(self, data: bytes, *, ended: bool) -> None:
        """HTTP/2: of no interest."""

    def on_closed(self) -> None:
        """HTTP/2: of no interest."""

    def on_drained(self) -> None:
        """HTTP/2: of no interest."""

    def on_slow(self) -> None:
        """HTTP/2: of no interest."""


_NOBODY = _Nobody()
_TOO_MANY_CALLS = wire.trailers_only(
    Status.RESOURCE_EXHAUSTED, "the server answers as many calls as it may; try again in a moment"
)
