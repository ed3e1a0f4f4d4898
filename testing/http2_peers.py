"""Our side of an HTTP/2 connection and a client's, joined in memory: the ``h2`` package, or frames written by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events

from tiercel.serving.http2 import frames, hpack
from tiercel.serving.http2.connection import Connection
from tiercel.serving.http2.requests import Request
from tiercel.serving.http2.streams import Http2Limits, Stream
from tiercel.serving.rest.messages import ByteBudget

HEADERS = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/s/m"),
    (b":authority", b"a"),
    (b"te", b"trailers"),
]
LIMITS = Http2Limits(header_bytes=4096, streams=10, window=100_000, idle_timeout=60.0, read_timeout=10.0)
BLOCK = hpack.encode(HEADERS)
RESPONSE = hpack.encode([(b":status", b"200")])
TRAILERS = hpack.encode([(b"grpc-status", b"0")])
GREETING = frames.PREFACE + frames.settings([])


@dataclass
class Taken:
    """One request as the application saw it."""

    stream: Stream
    request: Request
    body: bytes = b""
    ended: bool = False
    closed: bool = False
    drained: int = 0
    slow: int = 0

    def on_data(self, data: bytes, *, ended: bool) -> None:
        """Keep it."""
        assert not self.ended
        assert not self.closed
        self.body += data
        self.ended = ended

    def on_closed(self) -> None:
        """Count it."""
        assert not self.closed
        self.closed = True

    def on_drained(self) -> None:
        """Count it."""
        self.drained += 1

    def on_slow(self) -> None:
        """Count it."""
        self.slow += 1


@dataclass
class Server:
    """Our side."""

    limits: Http2Limits = LIMITS
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(1_000_000))
    taken: list[Taken] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the connection at time 0."""
        self.connection = Connection(self, self.limits, self.budget, 0.0)

    def on_request(self, stream: Stream, request: Request, *, ended: bool) -> Taken:
        """Keep it."""
        self.taken.append(Taken(stream, request, ended=ended))
        return self.taken[-1]

    def answer(self, taken: Taken, body: bytes) -> None:
        """Answer a request as a whole."""
        self.connection.sender.respond(taken.stream, RESPONSE, body, TRAILERS)

    def said(self) -> list[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of the frames sent since the last call."""
        return parse(self.connection.sender.take())

    def goaway(self) -> int | None:
        """The error code with which the connection was given up, if it was."""
        codes = [int.from_bytes(payload[4:8], "big") for kind, _, _, payload in self.said() if kind == frames.GOAWAY]
        return codes[-1] if codes else None


def parse(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Frames from bytes."""
    found = []
    while data:
        size_and_kind, flags, number = frames.HEAD.unpack_from(data)
        end = frames.HEAD_SIZE + (size_and_kind >> 8)
        found.append((size_and_kind & 0xFF, flags, number, data[frames.HEAD_SIZE : end]))
        data = data[end:]
    return found


class Joined:
    """Our side joined with a client of the ``h2`` package."""

    def __init__(self, server: Server | None = None) -> None:
        self.server = server or Server()
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        self.events: list[Any] = []
        self.client.initiate_connection()
        self.exchange()

    def exchange(self, chunk: int = 1 << 30) -> None:
        """Let both say what they have to say, in pieces of ``chunk`` octets to the server."""
        while True:
            sent = self.client.data_to_send()
            for start in range(0, len(sent), chunk):
                self.server.connection.receive(sent[start : start + chunk])
            answer = self.server.connection.sender.take()
            if answer:
                self.events += self.client.receive_data(answer)
                self.server.connection.sender.pump()
            if not answer and not sent:
                return

    def ask(self, body: bytes = b"", *, ended: bool = True, headers: list[tuple[bytes, bytes]] | None = None) -> int:
        """Send a request, at most what the window lets through at once."""
        number = int(self.client.get_next_available_stream_id())
        self.client.send_headers(number, headers or HEADERS, end_stream=ended and not body)
        if body:
            self.client.send_data(number, body, end_stream=ended)
        return number

    def body(self, number: int) -> bytes:
        """What was answered on a stream."""
        parts = (e for e in self.events if isinstance(e, h2.events.DataReceived) and e.stream_id == number)
        return b"".join(bytes(part.data or b"") for part in parts)

    def has(self, kind: type[Any], number: int) -> bool:
        """Whether the client saw such an event on a stream."""
        return any(isinstance(event, kind) and event.stream_id == number for event in self.events)


def open_stream(number: int = 1, flags: int = frames.END_HEADERS, block: bytes = BLOCK) -> bytes:
    return frames.frame(frames.HEADERS, flags, number, block)


def greeted(server: Server | None = None) -> Server:
    server = server or Server()
    server.connection.receive(GREETING)
    server.said()
    return server
