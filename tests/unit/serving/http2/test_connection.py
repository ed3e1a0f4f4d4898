from __future__ import annotations

import h2.events
import h2.settings
import pytest

from testing.http2_peers import (
    BLOCK,
    GREETING,
    HEADERS,
    RESPONSE,
    TRAILERS,
    Joined,
    Server,
    greeted,
    open_stream,
)
from tiercel.serving.http2 import frames, hpack
from tiercel.serving.http2.frames import (
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    frame,
)
from tiercel.serving.rest.messages import ByteBudget


@pytest.mark.parametrize("chunk", [1, 7, 1 << 30])
def test_a_request_and_its_answer(chunk: int) -> None:
    joined = Joined()
    number = joined.ask(b"question")
    joined.exchange(chunk)
    (taken,) = joined.server.taken
    assert (taken.request.method, taken.request.path, taken.body, taken.ended) == (b"POST", b"/s/m", b"question", True)
    joined.server.answer(taken, b"answer")
    joined.exchange()
    assert joined.body(number) == b"answer"
    (trailers,) = (event for event in joined.events if isinstance(event, h2.events.TrailersReceived))
    assert trailers.headers == [(b"grpc-status", b"0")]
    assert joined.has(h2.events.StreamEnded, number)
    assert not joined.server.connection.streams


def test_bodies_and_answers_larger_than_all_windows() -> None:
    joined = Joined()
    number = joined.ask(b"x" * 16_000, ended=False)
    for _ in range(60):
        joined.exchange()
        joined.client.send_data(number, b"x" * 16_000)
    joined.client.end_stream(number)
    joined.exchange()
    (taken,) = joined.server.taken
    assert taken.body == b"x" * 976_000
    answer = bytes(range(256)) * 2000
    joined.server.answer(taken, answer)
    joined.exchange()
    received = 0
    while received < len(answer):
        data = joined.body(number)
        assert len(data) > received
        joined.client.acknowledge_received_data(len(data) - received, number)
        received = len(data)
        assert joined.server.budget.used == len(answer) - received
        joined.exchange()
    assert joined.body(number) == answer
    assert joined.has(h2.events.StreamEnded, number)
    assert joined.server.budget.used == 0


def test_streams_share_the_window_in_turn() -> None:
    joined = Joined()
    numbers = [joined.ask() for _ in range(2)]
    joined.exchange()
    for taken in joined.server.taken:
        joined.server.answer(taken, b"y" * 200_000)
    joined.exchange()
    for number in numbers:
        joined.client.increment_flow_control_window(100_000, number)
    joined.client.increment_flow_control_window(100_000)
    before = [len(joined.body(number)) for number in numbers]
    joined.exchange()
    grown = [len(joined.body(number)) - old for number, old in zip(numbers, before, strict=True)]
    assert min(grown) >= 40_000


def test_a_smaller_initial_window_takes_back_what_was_granted() -> None:
    joined = Joined()
    number = joined.ask()
    joined.exchange()
    joined.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    joined.exchange()
    joined.server.answer(joined.server.taken[0], b"z" * 30)
    joined.exchange()
    assert len(joined.body(number)) == 10
    joined.client.increment_flow_control_window(100, number)
    joined.exchange()
    assert joined.body(number) == b"z" * 30


def test_an_answer_for_which_there_is_no_room_is_broken_off_alone() -> None:
    joined = Joined(Server(budget=ByteBudget(1000)))
    number, other = joined.ask(), joined.ask()
    joined.exchange()
    joined.server.answer(joined.server.taken[0], b"z" * 100_000)
    joined.exchange()
    assert joined.has(h2.events.StreamReset, number)
    assert joined.server.taken[0].closed
    assert joined.server.budget.used == 0
    joined.client.increment_flow_control_window(100_000)
    joined.server.answer(joined.server.taken[1], b"fine")
    joined.exchange()
    assert joined.body(other) == b"fine"


def test_while_the_transport_takes_no_more_answers_wait() -> None:
    server = greeted()
    server.connection.receive(open_stream(flags=END_HEADERS | END_STREAM))
    server.connection.sender.pause()
    server.answer(server.taken[0], b"later")
    assert [kind for kind, *_ in server.said()] == [frames.HEADERS]
    assert server.budget.used == 5
    server.connection.sender.resume()
    assert [(kind, payload) for kind, _, _, payload in server.said()] == [(DATA, b"later"), (frames.HEADERS, TRAILERS)]
    assert server.budget.used == 0


def test_an_answer_before_the_request_has_ended_stops_the_caller() -> None:
    server = greeted()
    server.connection.receive(open_stream())
    server.connection.sender.headers(server.taken[0].stream, RESPONSE, ended=True)
    assert [kind for kind, *_ in server.said()] == [frames.HEADERS, RST_STREAM]
    server.connection.receive(frame(DATA, END_STREAM, 1, b"too late"))
    assert server.said() == []
    assert server.taken[0].body == b""
    assert not server.connection.closed


def test_a_reset_reaches_the_handler_once() -> None:
    server = greeted()
    server.connection.receive(open_stream() + frames.rst_stream(1, frames.CANCEL) + frames.rst_stream(1, frames.CANCEL))
    assert server.taken[0].closed
    assert server.connection.streams == {}


def test_continuations_padding_priority_and_unknown_frames() -> None:
    server = greeted()
    block = hpack.encode(HEADERS)
    flags = frames.PADDED | frames.HAS_PRIORITY
    server.connection.receive(
        frame(PRIORITY, 0, 5, b"\0\0\0\1\x10")
        + frame(frames.HEADERS, flags, 1, b"\x02" + b"\0\0\0\0\x10" + block[:3] + b"\0\0")
        + frame(CONTINUATION, 0, 1, block[3:9])
        + frame(CONTINUATION, END_HEADERS, 1, block[9:])
        + frame(0xFA, 0xFF, 1, b"what is this")
        + frame(DATA, frames.PADDED | END_STREAM, 1, b"\x03body\0\0\0")
    )
    assert (server.taken[0].request.path, server.taken[0].body, server.taken[0].ended) == (b"/s/m", b"body", True)


def test_pings_and_settings_are_acknowledged() -> None:
    server = greeted()
    server.connection.receive(frame(PING, 0, 0, b"12345678") + frames.settings([(0x99, 1)]))
    assert server.said() == [(PING, frames.ACK, 0, b"12345678"), (SETTINGS, frames.ACK, 0, b"")]


OPEN = open_stream()
ENDED = open_stream(flags=END_HEADERS | END_STREAM)


def with_fields(*fields: tuple[bytes, bytes]) -> bytes:
    return open_stream(block=hpack.encode(fields))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", PROTOCOL_ERROR),
        (frames.PREFACE + frame(PING, 0, 0, b"12345678"), PROTOCOL_ERROR),
        (frames.PREFACE + frame(SETTINGS, frames.ACK, 0, b""), PROTOCOL_ERROR),
        (frames.PREFACE + OPEN, PROTOCOL_ERROR),
        (GREETING + frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
        (GREETING + frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        (GREETING + frame(frames.HEADERS, END_HEADERS, 0, BLOCK), PROTOCOL_ERROR),
        (GREETING + open_stream(2), PROTOCOL_ERROR),
        (GREETING + b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", FRAME_SIZE_ERROR),
        (GREETING + frame(PING, 0, 0, b"1234567"), FRAME_SIZE_ERROR),
        (GREETING + frame(PING, 0, 1, b"12345678"), PROTOCOL_ERROR),
        (GREETING + frame(SETTINGS, 0, 1, b""), PROTOCOL_ERROR),
        (GREETING + frame(SETTINGS, 0, 0, b"12345"), FRAME_SIZE_ERROR),
        (GREETING + frame(SETTINGS, frames.ACK, 0, b"123456"), FRAME_SIZE_ERROR),
        (GREETING + frames.settings([(frames.SETTINGS_INITIAL_WINDOW_SIZE, 2**31)]), FLOW_CONTROL_ERROR),
        (GREETING + frames.settings([(frames.SETTINGS_MAX_FRAME_SIZE, 100)]), PROTOCOL_ERROR),
        (GREETING + frames.settings([(frames.SETTINGS_ENABLE_PUSH, 2)]), PROTOCOL_ERROR),
        (GREETING + frames.window_update(0, 0), PROTOCOL_ERROR),
        (GREETING + frames.window_update(1, 1), PROTOCOL_ERROR),
        (GREETING + frames.window_update(0, 2**31 - 1), FLOW_CONTROL_ERROR),
        (GREETING + frame(WINDOW_UPDATE, 0, 0, b"123"), FRAME_SIZE_ERROR),
        (GREETING + frames.rst_stream(1, 0), PROTOCOL_ERROR),
        (GREETING + OPEN + frame(RST_STREAM, 0, 1, b"123"), FRAME_SIZE_ERROR),
        (GREETING + frame(PRIORITY, 0, 0, b"12345"), PROTOCOL_ERROR),
        (GREETING + frame(PUSH_PROMISE, 0, 1, b"12345"), PROTOCOL_ERROR),
        (GREETING + frame(GOAWAY, 0, 0, b"1234"), FRAME_SIZE_ERROR),
        (GREETING + frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL_ERROR),
        (GREETING + open_stream(flags=0) + frame(PING, 0, 0, b"12345678"), PROTOCOL_ERROR),
        (GREETING + open_stream(flags=0) + frame(CONTINUATION, END_HEADERS, 3, b""), PROTOCOL_ERROR),
        (GREETING + open_stream(flags=0) + frame(DATA, 0, 1, b""), PROTOCOL_ERROR),
        (GREETING + open_stream(flags=0) + open_stream(3), PROTOCOL_ERROR),
        (GREETING + open_stream(flags=0) + frame(CONTINUATION, 0, 1, b"x" * 4096), ENHANCE_YOUR_CALM),
        (GREETING + OPEN + frame(DATA, frames.PADDED, 1, b"\x05abc"), PROTOCOL_ERROR),
        (GREETING + open_stream(block=b"\x80"), COMPRESSION_ERROR),
        (GREETING + frame(frames.HEADERS, END_HEADERS | frames.HAS_PRIORITY, 1, b"123"), FRAME_SIZE_ERROR),
        (GREETING + open_stream(flags=0) + frame(CONTINUATION, 0, 1, b"") * 2001, ENHANCE_YOUR_CALM),
        (GREETING + frame(PING, 0, 0, b"12345678") * 2001, ENHANCE_YOUR_CALM),
        (GREETING + frames.settings([]) * 2001, ENHANCE_YOUR_CALM),
        (GREETING + OPEN + frame(DATA, 0, 1, b"") * 2001, ENHANCE_YOUR_CALM),
        (GREETING + OPEN + frames.window_update(1, 1) * 2001, ENHANCE_YOUR_CALM),
        (GREETING + frame(PRIORITY, 0, 1, b"12345") * 2001, ENHANCE_YOUR_CALM),
        (GREETING + frame(0xFA, 0, 0, b"") * 2001, ENHANCE_YOUR_CALM),
    ],
)
def test_what_ends_the_connection(data: bytes, code: int) -> None:
    server = Server()
    server.connection.receive(data)
    assert server.goaway() == code
    assert server.connection.closed
    assert server.connection.streams == {}
    assert all(taken.closed for taken in server.taken)
    server.connection.receive(GREETING + OPEN)  # of no interest any more
    assert server.said() == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (with_fields((b":method", b"POST"), (b":scheme", b"http")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b":path", b"/x")), PROTOCOL_ERROR),
        (with_fields(*HEADERS[:3], (b"a", b"b"), (b":authority", b"x")), PROTOCOL_ERROR),
        (with_fields(*HEADERS[:3], (b":path", b"/y")), PROTOCOL_ERROR),
        (with_fields((b":status", b"200"), *HEADERS), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"Upper", b"x")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"a b", b"x")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"a", b"x\r\ny")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"a", b" x")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"connection", b"close")), PROTOCOL_ERROR),
        (with_fields(*HEADERS[:4], (b"te", b"gzip")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"content-length", b"1"), (b"content-length", b"2")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"content-length", b"-1")), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"content-length", b"3")) + frame(DATA, END_STREAM, 1, b"12"), PROTOCOL_ERROR),
        (with_fields(*HEADERS, (b"content-length", b"3")) + frame(DATA, 0, 1, b"1234"), PROTOCOL_ERROR),
        (OPEN + OPEN, PROTOCOL_ERROR),  # trailers that do not end the request
        (OPEN + ENDED, PROTOCOL_ERROR),  # and have pseudo header fields
        (ENDED + frame(DATA, 0, 1, b"x"), STREAM_CLOSED),
        (ENDED + ENDED, STREAM_CLOSED),
        (OPEN + frames.window_update(1, 0), PROTOCOL_ERROR),
        (OPEN + frames.window_update(1, 2**31 - 1), FLOW_CONTROL_ERROR),
        (OPEN + frame(PRIORITY, 0, 1, b"1234"), FRAME_SIZE_ERROR),
    ],
)
def test_what_ends_one_stream(data: bytes, code: int) -> None:
    server = greeted()
    server.connection.receive(data)
    resets = [int.from_bytes(payload, "big") for kind, _, _, payload in server.said() if kind == RST_STREAM]
    assert resets == [code]
    assert 1 not in server.connection.streams
    assert all(taken.closed for taken in server.taken)
    server.connection.receive(open_stream(3, END_HEADERS | END_STREAM))
    server.answer(server.taken[-1], b"still here")
    assert (DATA, 0, 3, b"still here") in server.said()


def test_leaving_takes_two_steps_and_loses_no_request() -> None:
    server = greeted()
    server.connection.receive(open_stream(1, END_HEADERS | END_STREAM))
    server.connection.leave()
    (kind, _, _, goaway), (_, _, _, ping) = server.said()
    assert (kind, goaway[:8]) == (GOAWAY, b"\x7f\xff\xff\xff\0\0\0\0")
    server.connection.receive(open_stream(3, END_HEADERS | END_STREAM))  # was on its way
    server.connection.receive(frame(PING, frames.ACK, 0, ping))
    assert server.said() == [(GOAWAY, 0, 0, b"\0\0\0\x03\0\0\0\0")]
    server.connection.receive(open_stream(5, END_HEADERS | END_STREAM))
    assert server.said() == [(RST_STREAM, 0, 5, REFUSED_STREAM.to_bytes(4, "big"))]
    for taken in server.taken:
        assert not server.connection.closed
        server.answer(taken, b"answer")
    assert server.connection.closed


def test_leaving_does_not_wait_for_who_does_not_answer() -> None:
    server = greeted()
    server.connection.leave()
    server.connection.tick(1.0)
    assert not server.connection.closed
    server.connection.tick(3.0)
    assert server.connection.closed


def test_windows_grow_as_bodies_are_read() -> None:
    server = greeted()
    server.connection.receive(OPEN + frame(DATA, 0, 1, b"x" * 16384) * 7)
    assert [(kind, number) for kind, _, number, _ in server.said()] == [(WINDOW_UPDATE, 1)]
    assert len(server.taken[0].body) == 7 * 16384
