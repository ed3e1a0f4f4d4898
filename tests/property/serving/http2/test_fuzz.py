"""Whatever a peer sends, in whatever pieces: its connection answers or closes, and holds nothing afterwards."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from testing.http2_peers import BLOCK, GREETING, LIMITS, RESPONSE, TRAILERS, Server, parse
from tiercel.serving.grpc.server.assembler import Assembler
from tiercel.serving.grpc.server.wire import CallError
from tiercel.serving.http2 import frames, hpack
from tiercel.serving.http2.requests import Request
from tiercel.serving.http2.streams import Stream
from tiercel.serving.rest.messages import ByteBudget

NUMBERS = st.sampled_from([0, 1, 1, 3, 3, 5, 7, 9, 2, 2**31 - 1])
SMALL = st.integers(0, 40)
FLAGS = st.sampled_from([0, 1, 4, 5, 8, 0x0D, 0x2D, 0xFF])
HEADER_BLOCKS = st.sampled_from(
    [BLOCK, BLOCK[:5], BLOCK[5:], hpack.encode([(b"x", b"y")]), b"\x40\x01a\x01b", b"\xbe", b"\x3f\xe1\x1f", b""]
)
SETTINGS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 100, 16384, 65535, 2**31 - 1, 2**32 - 1])))
WELL_MEANT = st.one_of(
    st.builds(frames.frame, st.just(frames.HEADERS), st.sampled_from([4, 5, 5, 0, 1]), NUMBERS, HEADER_BLOCKS),
    st.builds(frames.frame, st.just(frames.CONTINUATION), st.sampled_from([0, 4]), NUMBERS, HEADER_BLOCKS),
    st.builds(frames.frame, st.just(frames.DATA), st.sampled_from([0, 1, 8]), NUMBERS, st.binary(max_size=300)),
    st.builds(frames.window_update, NUMBERS, st.sampled_from([0, 1, 10, 100_000, 2**31 - 1])),
    st.builds(frames.rst_stream, NUMBERS, SMALL),
    st.builds(frames.settings, SETTINGS),
    st.builds(frames.frame, st.just(frames.PING), st.sampled_from([0, 1]), st.just(0), st.just(b"12345678")),
    st.builds(frames.frame, st.integers(0, 12), FLAGS, NUMBERS, st.binary(max_size=40)),
)
MUTATIONS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3)


class Answering(Server):
    """Answers some requests at once, some when they have ended, and some never, by their stream's number."""

    def on_request(self, stream: Stream, request: Request, *, ended: bool) -> object:  # type: ignore[override]
        taken = super().on_request(stream, request, ended=ended)
        if stream.id % 3 == 0:
            self.connection.sender.respond(stream, RESPONSE, b"z" * 70_000, TRAILERS)
        elif stream.id % 3 == 1 and ended:
            self.connection.sender.respond(stream, RESPONSE, b"small", TRAILERS)
        return taken


@given(st.lists(WELL_MEANT, max_size=25), MUTATIONS, st.lists(st.integers(1, 400), max_size=10), st.booleans())
@settings(max_examples=400, deadline=None)
def test_frames_of_all_kinds_in_any_order(
    sent: list[bytes], mutations: list[tuple[float, int]], cuts: list[int], greets: bool
) -> None:
    data = bytearray((GREETING if greets else b"") + b"".join(sent))
    for place, octet in mutations:
        if data:
            data[int(place * len(data))] = octet
    server = Answering(budget=ByteBudget(100_000))
    connection = server.connection
    position = 0
    for cut in [*cuts, len(data)]:
        connection.receive(bytes(data[position : position + cut]))
        position += cut
        parse(connection.sender.take())
        connection.sender.pump()
        assert len(connection.streams) <= LIMITS.streams
        assert 0 <= server.budget.used <= 100_000
        assert connection.sender.window >= 0
        assert all(not stream.closed for stream in connection.streams.values())
    for time in (1.0, 12.0, 80.0, 160.0, 240.0):
        connection.tick(time)
    assert connection.closed or connection.streams  # streams that are whole wait for their answers, not for the peer
    connection.lost()
    assert connection.streams == {}
    assert server.budget.used == 0
    assert all(taken.stream.closed for taken in server.taken)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.binary(max_size=60)), max_size=6),
    st.lists(st.integers(0, 20), max_size=20),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_messages_in_any_pieces(parts: list[tuple[int, int, bytes]], cuts: list[int], compressed: bool) -> None:
    budget = ByteBudget(50)
    assembler = Assembler(40, compressed, budget)
    data = b"".join(bytes((flag,)) + length.to_bytes(4, "big") + body for flag, length, body in parts)
    position = 0
    for cut in [*cuts, len(data)]:
        try:
            messages = assembler.feed(data[position : position + cut])
        except CallError:
            break
        position += cut
        assert all(len(message) <= 40 for message in messages)
        assert 0 <= budget.used <= 50
    assembler.forget()
    assert budget.used == 0


@given(st.lists(st.binary(max_size=100), max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_whole_messages_come_out_however_they_were_cut(bodies: list[bytes], source: random.Random) -> None:
    budget = ByteBudget(1000)
    assembler = Assembler(100, compressed=False, budget=budget)
    data = b"".join(b"\0" + len(body).to_bytes(4, "big") + body for body in bodies)
    found: list[bytes] = []
    while data:
        cut = source.randint(1, 30)
        found += assembler.feed(data[:cut])
        data = data[cut:]
    assert found == bodies
    assert assembler.is_between_messages
    assert budget.used == 0
