"""What goes to the peer: frames within its windows, and what waits until it takes more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tiercel.serving.http2 import frames
from tiercel.serving.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, ConnectionFailedError
from tiercel.serving.http2.streams import Budget, Stream

_pack = frames.HEAD.pack
# Bytes handed to the transport at once; so that it can say that the peer takes no more.
_ROOM = 256 * 1024


class Sender:
    """Writes frames; never more than the peer's windows and the transport let through.

    Args:
        budget: For what waits, shared by all connections.
        on_ended: Called when this side of a stream is done.
        on_refused: Called instead of sending when the budget is used up.

    Attributes:
        out: Frames to hand to the transport.
        blocked: Streams with bytes that wait, in turn.
        window: Bytes of bodies that the peer takes on all streams together.
        stream_window: What it takes on a new stream.
        progress: Grows with everything that was sent.
    """

    __slots__ = (
        "_budget", "_max_frame", "_on_ended", "_on_refused", "_paused", "_room", "blocked", "out", "progress",
        "stream_window", "window",
    )  # fmt: skip

    def __init__(
        self, budget: Budget, on_ended: Callable[[Stream], None], on_refused: Callable[[Stream], None]
    ) -> None:
        self._budget = budget
        self._on_ended = on_ended
        self._on_refused = on_refused
        self._max_frame = frames.MAX_FRAME_SIZE
        self._room = _ROOM
        self._paused = False
        self.out: list[bytes] = []
        self.blocked: dict[int, Stream] = {}
        self.window = frames.DEFAULT_WINDOW
        self.stream_window = frames.DEFAULT_WINDOW
        self.progress = 0

    def respond(self, stream: Stream, head: bytes, body: bytes, trailers: bytes) -> None:
        """Answer as a whole: header block, body, and the header block that ends it."""
        size = len(body)
        if size > stream.window or size > self.window or size > self._room or size > self._max_frame or self.blocked:
            self.headers(stream, head)
            self.data(stream, body)
            self.end(stream, trailers)
            return
        self.window -= size
        self._room -= size
        number = stream.id
        self.out += (
            _pack(len(head) << 8 | HEADERS, END_HEADERS, number),
            head,
            _pack(size << 8, 0, number),
            body,
            _pack(len(trailers) << 8 | HEADERS, END_HEADERS | END_STREAM, number),
            trailers,
        )
        self._on_ended(stream)

    def headers(self, stream: Stream, block: bytes, *, ended: bool = False) -> None:
        """Send a header block, which must fit a frame; ``ended`` if there is nothing else."""
        flags = END_HEADERS | END_STREAM if ended else END_HEADERS
        self.out.append(frames.frame(HEADERS, flags, stream.id, block))
        if ended:
            self._on_ended(stream)

    def data(self, stream: Stream, body: bytes) -> None:
        """Send a part of a body now, as far as the peer takes it, and the rest when it does."""
        if stream.closed:
            return
        rest = memoryview(body)
        if stream.pending is None and not self.blocked:
            rest = self._send(stream, rest)
            while rest and min(self.window, stream.window, self._room) > 0:
                rest = self._send(stream, rest)
        if not rest:
            return
        if not self._budget.reserve(len(rest)):
            self._on_refused(stream)
            return
        stream.reserved += len(rest)
        if stream.pending is None:
            stream.pending = deque()
        stream.pending.append(rest)
        self.blocked[stream.id] = stream

    def end(self, stream: Stream, trailers: bytes) -> None:
        """End the answer with a header block once all of its body is sent."""
        if stream.closed:
            return
        if stream.pending is None:
            self.headers(stream, trailers, ended=True)
        else:
            stream.trailers = trailers

    def pump(self) -> None:
        """Send what waits as far as it goes now: a frame of each stream in turn."""
        blocked = self.blocked
        stuck = 0
        while blocked and stuck < len(blocked) and self.window > 0 and self._room > 0:
            number = next(iter(blocked))
            stream = blocked.pop(number)
            if stream.window <= 0:
                blocked[number] = stream
                stuck += 1
                continue
            stuck = 0
            self._send_pending(stream)

    def forget(self, stream: Stream) -> None:
        """A stream is closed; nothing of it waits any more."""
        if stream.pending is not None:
            self.blocked.pop(stream.id, None)
            self._budget.release(stream.reserved)
            stream.pending = None
            stream.reserved = 0

    def grant(self, stream: Stream | None, increment: int) -> None:
        """The peer takes this much more, on one stream or on all together.

        Raises:
            ConnectionFailedError: The connection's window gets too large, or ``stream``'s, which the caller may take
                for that stream's error alone.
        """
        target = self if stream is None else stream
        if target.window + increment > frames.MAX_WINDOW:
            raise ConnectionFailedError(frames.FLOW_CONTROL_ERROR, "a flow-control window is over 2^31-1")
        target.window += increment
        self.pump()

    def configure(self, identifier: int, value: int, streams: dict[int, Stream]) -> None:
        """A setting of the peer's.

        Raises:
            ConnectionFailedError: Its value is impossible.
        """
        if identifier == frames.SETTINGS_INITIAL_WINDOW_SIZE:
            change = value - self.stream_window
            if value > frames.MAX_WINDOW or any(s.window + change > frames.MAX_WINDOW for s in streams.values()):
                raise ConnectionFailedError(frames.FLOW_CONTROL_ERROR, "an initial window is over 2^31-1")
            self.stream_window = value
            for stream in streams.values():
                stream.window += change
            self.pump()
        elif identifier == frames.SETTINGS_MAX_FRAME_SIZE:
            if not frames.MAX_FRAME_SIZE <= value < 1 << 24:
                raise ConnectionFailedError(frames.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE is out of range")
            self._max_frame = min(value, _ROOM)
        elif identifier == frames.SETTINGS_ENABLE_PUSH and value > 1:
            raise ConnectionFailedError(frames.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH is neither 0 nor 1")

    def take(self) -> bytes:
        """What to hand to the transport."""
        taken = b"".join(self.out)
        self.out.clear()
        self.progress += len(taken)
        self._room = 0 if self._paused else _ROOM
        return taken

    def pause(self) -> None:
        """The transport takes no more; what is little enough to be answered at once waits, too."""
        self._paused = True
        self._room = 0

    @property
    def is_paused(self) -> bool:
        """Whether the transport takes no more."""
        return self._paused

    def resume(self) -> None:
        """It does again."""
        self._paused = False
        self._room = _ROOM
        self.pump()

    def _send(self, stream: Stream, rest: memoryview) -> memoryview:
        """Send one frame; returns what is left."""
        size = min(len(rest), self._max_frame, self.window, stream.window, self._room)
        if size <= 0:
            return rest
        self.window -= size
        stream.window -= size
        self._room -= size
        self.out += (_pack(size << 8 | DATA, 0, stream.id), bytes(rest[:size]))
        return rest[size:]

    def _send_pending(self, stream: Stream) -> None:
        """Send one frame of a stream that is not in ``blocked``, and put it back behind the others if it has more."""
        pending = stream.pending
        if pending is None:
            return
        before = len(pending[0])
        rest = self._send(stream, pending[0])
        sent = before - len(rest)
        self._budget.release(sent)
        stream.reserved -= sent
        if rest:
            pending[0] = rest
        else:
            pending.popleft()
        if pending:
            self.blocked[stream.id] = stream
            return
        stream.pending = None
        if stream.trailers is not None:
            self.headers(stream, stream.trailers, ended=True)
        elif stream.handler is not None:
            stream.handler.on_drained()
