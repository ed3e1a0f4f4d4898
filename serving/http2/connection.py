"""One HTTP/2 connection, seen from the server, without I/O: bytes in, calls of handlers, bytes out.

Time is an argument: :meth:`Connection.tick` says how late it is, about once a second, and that is precise enough for
everything here.
"""

from __future__ import annotations

from typing import Literal

from tiercel.serving.http2 import frames
from tiercel.serving.http2.abuse_limiter import AbuseLimiter, AbuseVerdict, Timeouts
from tiercel.serving.http2.frames import ConnectionFailedError, expect
from tiercel.serving.http2.header_blocks import INTERRUPTED, PartialBlock, part_of
from tiercel.serving.http2.hpack import Decoder, HeaderBlock, HpackError
from tiercel.serving.http2.requests import MalformedError, Request, check_trailers, request_of
from tiercel.serving.http2.sender import Sender
from tiercel.serving.http2.streams import Application, Budget, Http2Limits, RecentResets, Stream

_unpack = frames.HEAD.unpack_from
_CONNECTION_WINDOW = 8  # times a stream's
_LEAVE_SECONDS = 2.0  # for the peer to answer that PING
_ALIVE = b"alive???"
_DRAINED = b"draining"  # bytes of the PING that goes with the announcement that the server leaves


class Connection:
    """The protocol's state, from the preface to GOAWAY.

    A peer that breaks the protocol gets the error code that the RFC names, for the stream or for the connection; no
    bytes raise anything.

    Args:
        budget: Bytes of answers that wait, shared by all connections.

    Attributes:
        abuse: What the peer may waste yet.
        sender: Sends answers.
        streams: Open streams by number.
        closed: The connection is to be closed once what there is to send is sent.
        broken: It is to be closed at once, since the peer does not even read.
    """

    def __init__(self, application: Application, limits: Http2Limits, budget: Budget, now: float) -> None:
        self._application = application
        self._limits = limits
        self._decoder = Decoder(limits.header_bytes)
        self.abuse = AbuseLimiter()
        self.sender = Sender(budget, self._answered, self._refused)
        self.streams: dict[int, Stream] = {}
        self.closed = False
        self.broken = False
        self._rest = b""
        self._greeting: Literal["preface", "settings", "done"] = "preface"
        self._block: PartialBlock | None = None
        self._last = 0
        self._last_wanted = frames.LAST_STREAM
        self._leaving_since: float | None = None
        self._window = limits.window * _CONNECTION_WINDOW
        self._unreturned = 0
        self._reset_here = RecentResets()
        self._timeouts = Timeouts(limits.idle_timeout, limits.read_timeout, now)
        self.sender.out.append(frames.settings(limits.settings()))
        self.sender.out.append(frames.window_update(0, self._window - frames.DEFAULT_WINDOW))

    def receive(self, data: bytes) -> None:
        """Bytes from the peer."""
        if self.closed:
            return
        self._timeouts.received_at = self._timeouts.now
        try:
            self._receive(self._rest + data if self._rest else data)
        except ConnectionFailedError as error:
            self._fail(error.code, error.message)

    def lost(self) -> None:
        """The transport is gone: all streams are."""
        self.closed = True
        for stream in tuple(self.streams.values()):
            self._abandon(stream)

    def leave(self) -> None:
        """Announce that no more streams are wanted; those already on their way are still answered."""
        if self._greeting != "done":
            self.closed = True
        elif self._leaving_since is None and not self.closed:
            self._leaving_since = self._timeouts.now
            self.sender.out += (
                frames.goaway(frames.LAST_STREAM, frames.NO_ERROR, "the server leaves"),
                frames.frame(frames.PING, 0, 0, _DRAINED),
            )

    def refuse(self, message: str) -> None:
        """There is no room for this connection."""
        self._fail(frames.ENHANCE_YOUR_CALM, message)

    def reset(self, stream: Stream, code: int) -> None:
        """Break a stream off."""
        if not stream.closed:
            self.sender.out.append(frames.rst_stream(stream.id, code))
            self._reset_here.add(stream.id)
            self._close(stream)

    @property
    def has_drained(self) -> bool:
        """Whether all that the peer sent before it knew that this side leaves has been received."""
        return self._last_wanted != frames.LAST_STREAM

    @property
    def is_blocked(self) -> bool:
        """Whether bytes wait for the peer to take them."""
        return bool(self.sender.blocked) or self.sender.is_paused

    def tick(self, now: float) -> None:
        """It is ``now``: end what took too long."""
        self.abuse.refill(now - self._timeouts.now)
        sender = self.sender
        verdict = self._timeouts.check(
            now, streams=len(self.streams), last=self._last, blocked=self.is_blocked, progress=sender.progress
        )
        if verdict is AbuseVerdict.BREAK:
            self.broken = True
            self._fail(frames.ENHANCE_YOUR_CALM, "the peer is too slow")
            return
        if verdict is AbuseVerdict.ASK:
            sender.out.append(frames.frame(frames.PING, 0, 0, _ALIVE))
        elif verdict is AbuseVerdict.LEAVE:
            self.leave()
        if self._leaving_since is not None and now - self._leaving_since > _LEAVE_SECONDS:
            self._leave_now()
        for stream in tuple(self.streams.values()):
            late = not stream.ended and not stream.may_be_slow and now - stream.began > self._limits.read_timeout
            if late and stream.handler is not None and not stream.closed:
                stream.handler.on_slow()

    # What arrives

    def _receive(self, data: bytes) -> None:
        position, end = 0, len(data)
        if self._greeting == "preface":
            if not self._is_greeted(data):
                return
            position = len(frames.PREFACE)
        while end - position >= frames.HEAD_SIZE:
            size_and_kind, flags, number = _unpack(data, position)
            size = size_and_kind >> 8
            if size > frames.MAX_FRAME_SIZE:
                raise ConnectionFailedError(frames.FRAME_SIZE_ERROR, f"a frame is over {frames.MAX_FRAME_SIZE} bytes")
            start = position + frames.HEAD_SIZE
            if start + size > end:
                break
            position = start + size
            kind = size_and_kind & 0xFF
            if kind == frames.DATA:
                self._on_data(flags, number & frames.STREAM_MASK, data[start:position])
            elif kind == frames.HEADERS:
                self._on_headers(flags, number & frames.STREAM_MASK, data[start:position])
            else:
                self._on_other(kind, flags, number & frames.STREAM_MASK, data[start:position])
            if self.closed:
                return
        self._rest = data[position:]
        timeouts, in_block = self._timeouts, self._block is not None
        if (self._rest or in_block or timeouts.unfinished_since is not None) and self._greeting == "done":
            timeouts.note_unfinished(in_frame=bool(self._rest), in_block=in_block, progressed=position > 0)

    def _is_greeted(self, data: bytes) -> bool:
        """Whether the connection's preface has arrived as a whole."""
        if not frames.PREFACE.startswith(data[: len(frames.PREFACE)]):
            raise ConnectionFailedError(frames.PROTOCOL_ERROR, "this is not HTTP/2 with prior knowledge")
        if len(data) < len(frames.PREFACE):
            self._rest = data
            return False
        self._greeting = "settings"
        return True

    def _on_other(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        expect(self._block is None or kind == frames.CONTINUATION, frames.PROTOCOL_ERROR, INTERRUPTED)
        if self._greeting == "settings" and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ConnectionFailedError(frames.PROTOCOL_ERROR, "the first frame must be SETTINGS")
        self.abuse.spend()
        match kind:
            case frames.SETTINGS:
                self._on_settings(flags, number, payload)
            case frames.WINDOW_UPDATE:
                self._on_window_update(number, payload)
            case frames.PING:
                self._on_ping(flags, number, payload)
            case frames.RST_STREAM:
                self._on_reset(number, payload)
            case frames.CONTINUATION:
                self._on_continuation(flags, number, payload)
            case frames.PRIORITY | frames.GOAWAY | frames.PUSH_PROMISE:
                if code := frames.check_unused(kind, number, payload):
                    self._fail_stream(number, code)
                elif kind == frames.GOAWAY:
                    self.leave()  # a client that leaves opens no streams; it waits for its answers

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        expect(self._block is None, frames.PROTOCOL_ERROR, INTERRUPTED)
        if self._greeting != "done" or number == 0:
            raise ConnectionFailedError(frames.PROTOCOL_ERROR, "HEADERS is on stream 0, or came before SETTINGS")
        part = part_of(flags, payload)
        if flags & frames.END_HEADERS:
            self._on_block(flags, number, part)
        else:
            self._block = PartialBlock(flags, number, self._limits.header_bytes)
            self._block.extend(part)

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        block = self._block
        if block is None or block.stream != number:
            raise ConnectionFailedError(frames.PROTOCOL_ERROR, "CONTINUATION continues nothing")
        block.extend(payload)
        if flags & frames.END_HEADERS:
            self._block = None
            self._on_block(block.flags, number, bytes(block))

    def _on_block(self, flags: int, number: int, block: bytes) -> None:
        try:
            headers = self._decoder.decode(block)
        except HpackError as error:
            raise ConnectionFailedError(frames.COMPRESSION_ERROR, str(error)) from error
        ended = bool(flags & frames.END_STREAM)
        try:
            if number > self._last:
                self._open(number, headers, ended=ended)
            else:
                self._end_with_trailers(number, headers, ended=ended)
        except MalformedError:
            self.abuse.spend()
            self._fail_stream(number, frames.PROTOCOL_ERROR)

    def _open(self, number: int, headers: HeaderBlock, *, ended: bool) -> None:
        if number % 2 == 0:
            raise ConnectionFailedError(frames.PROTOCOL_ERROR, "a client's streams have odd numbers")
        self._last = number
        known = headers.request
        request = known if isinstance(known, Request) else request_of(headers)
        if number > self._last_wanted or len(self.streams) >= self._limits.streams:
            self._refuse_stream(number)
            return
        if ended and request.content_length > 0:
            raise MalformedError("content-length says that there is a body")
        stream = Stream(number, self.sender.stream_window, request.content_length, self._timeouts.now)
        stream.ended = ended
        self.streams[number] = stream
        handler = self._application.on_request(stream, request, ended=ended)
        if not stream.closed:
            stream.handler = handler

    def _end_with_trailers(self, number: int, headers: HeaderBlock, *, ended: bool) -> None:
        stream = self.streams.get(number)
        if stream is None or stream.ended:
            self._refuse_frame(number)
        else:
            check_trailers(headers)
            if not ended:
                raise MalformedError("trailers must end a request")
            self._on_body(stream, b"", ended=True)

    def _refuse_stream(self, number: int) -> None:
        self.abuse.spend()
        self.sender.out.append(frames.rst_stream(number, frames.REFUSED_STREAM))
        self._reset_here.add(number)

    def _refuse_frame(self, number: int) -> None:
        """The peer may not send on this stream, or not any more."""
        expect(number <= self._last, frames.PROTOCOL_ERROR, "a frame is on a stream that was not opened")
        self.abuse.spend()
        if number not in self._reset_here:
            self._fail_stream(number, frames.STREAM_CLOSED)

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        if number == 0 or self._block is not None:
            raise ConnectionFailedError(frames.PROTOCOL_ERROR, "DATA is on stream 0" if not number else INTERRUPTED)
        size = len(payload)
        self._unreturned += size
        if self._unreturned > self._window:
            raise ConnectionFailedError(frames.FLOW_CONTROL_ERROR, "the connection's flow-control window is exceeded")
        if self._unreturned * 2 >= self._window:
            self.sender.out.append(frames.window_update(0, self._unreturned))
            self._unreturned = 0
        if flags & frames.PADDED:
            payload = frames.without_padding(flags, payload)
        stream = self.streams.get(number)
        if stream is None or stream.ended:
            self._refuse_frame(number)
            return
        stream.unreturned += size
        if stream.unreturned > self._limits.window:
            self._fail_stream(number, frames.FLOW_CONTROL_ERROR)
            return
        ended = bool(flags & frames.END_STREAM)
        if not payload and not ended:
            self.abuse.spend()
        self._on_body(stream, payload, ended=ended)
        if not (ended or stream.closed) and stream.unreturned * 2 >= self._limits.window:
            self.sender.out.append(frames.window_update(number, stream.unreturned))
            stream.unreturned = 0

    def _on_body(self, stream: Stream, data: bytes, *, ended: bool) -> None:
        stream.received += len(data)
        expected = stream.content_length
        if expected >= 0 and (stream.received > expected or (ended and stream.received != expected)):
            self._fail_stream(stream.id, frames.PROTOCOL_ERROR)
            return
        stream.ended = ended
        if stream.handler is not None:
            stream.handler.on_data(data, ended=ended)

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        expect(number == 0, frames.PROTOCOL_ERROR, "SETTINGS is on a stream")
        if flags & frames.ACK:
            expect(not payload, frames.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS carries settings")
            return
        expect(len(payload) % 6 == 0, frames.FRAME_SIZE_ERROR, "SETTINGS is cut off")
        self._greeting = "done"
        for identifier, value in frames.read_settings(payload):
            self.sender.configure(identifier, value, self.streams)
        self.sender.out.append(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))

    def _on_window_update(self, number: int, payload: bytes) -> None:
        expect(len(payload) == 4, frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE has another length than 4")
        increment = frames.read_number(payload) & frames.STREAM_MASK
        if number == 0:
            expect(increment > 0, frames.PROTOCOL_ERROR, "a flow-control window grows by 0")
            self.sender.grant(None, increment)
            return
        expect(number <= self._last, frames.PROTOCOL_ERROR, "WINDOW_UPDATE is on a stream that was not opened")
        stream = self.streams.get(number)
        if stream is None:
            return
        if increment == 0:
            self._fail_stream(number, frames.PROTOCOL_ERROR)
            return
        try:
            self.sender.grant(stream, increment)
        except ConnectionFailedError as error:
            self._fail_stream(number, error.code)

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        expect(number == 0, frames.PROTOCOL_ERROR, "PING is on a stream")
        expect(len(payload) == 8, frames.FRAME_SIZE_ERROR, "PING has another length than 8")
        if not flags & frames.ACK:
            self.sender.out.append(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == _DRAINED and self._leaving_since is not None:
            self._leave_now()

    def _on_reset(self, number: int, payload: bytes) -> None:
        expect(len(payload) == 4, frames.FRAME_SIZE_ERROR, "RST_STREAM has another length than 4")
        expect(0 < number <= self._last, frames.PROTOCOL_ERROR, "RST_STREAM is on a stream that was not opened")
        stream = self.streams.get(number)
        if stream is not None:
            self._abandon(stream)

    # How streams and the connection end

    def _answered(self, stream: Stream) -> None:
        self.abuse.earn()
        if not stream.ended:  # the rest of the request is of no interest
            self.sender.out.append(frames.rst_stream(stream.id, frames.NO_ERROR))
            self._reset_here.add(stream.id)
        self._close(stream)

    def _refused(self, stream: Stream) -> None:
        self._fail_stream(stream.id, frames.ENHANCE_YOUR_CALM)

    def _close(self, stream: Stream) -> None:
        stream.closed = True
        stream.handler = None  # stream and handler know each other, which is work for the garbage collector
        self.streams.pop(stream.id, None)
        self.sender.forget(stream)
        if not self.streams and self.has_drained:
            self.closed = True

    def _abandon(self, stream: Stream) -> None:
        handler = stream.handler
        self._close(stream)
        if handler is not None:
            handler.on_closed()

    def _fail_stream(self, number: int, code: int) -> None:
        self.sender.out.append(frames.rst_stream(number, code))
        self._reset_here.add(number)
        stream = self.streams.get(number)
        if stream is not None:
            self._abandon(stream)

    def _leave_now(self) -> None:
        """All that was on its way when it was announced is here."""
        if not self.has_drained:
            self._last_wanted = self._last
            self.sender.out.append(frames.goaway(self._last, frames.NO_ERROR))
            self.closed = not self.streams

    def _fail(self, code: int, message: str) -> None:
        self.sender.out.append(frames.goaway(self._last, code, message))
        self.lost()
