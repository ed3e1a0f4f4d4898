"""What a peer may ask for, and how long it may take."""

from __future__ import annotations

import pytest

from testing.http2_peers import (
    GREETING,
    HEADERS,
    LIMITS,
    Server,
    greeted,
    open_stream,
)
from tiercel.serving.http2 import frames, hpack
from tiercel.serving.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    PING,
    REFUSED_STREAM,
    RST_STREAM,
    STREAM_CLOSED,
    frame,
)


def test_streams_over_the_limit_are_refused() -> None:
    server = greeted()
    for number in range(1, 23, 2):
        server.connection.receive(open_stream(number))
    assert server.said() == [(RST_STREAM, 0, 21, REFUSED_STREAM.to_bytes(4, "big"))]
    assert len(server.taken) == LIMITS.streams


def test_streams_that_are_refused_again_and_again_end_the_connection() -> None:
    server = greeted()
    for number in range(1, 2 * (LIMITS.streams + 2001), 2):
        server.connection.receive(open_stream(number))
    assert server.goaway() == ENHANCE_YOUR_CALM


def test_of_many_streams_that_were_reset_here_only_the_last_are_remembered() -> None:
    server = greeted()
    for number in range(1, 2 * (LIMITS.streams + 1000), 2):
        server.connection.receive(open_stream(number))
    server.said()
    server.connection.receive(frame(DATA, 0, number, b"late"))  # may have been on its way
    assert server.said() == []
    first_refused = 2 * LIMITS.streams + 1
    server.connection.receive(frame(DATA, 0, first_refused, b"late"))
    assert server.said() == [(RST_STREAM, 0, first_refused, STREAM_CLOSED.to_bytes(4, "big"))]


def test_rapid_resets_end_the_connection_and_clients_that_cancel_at_times_do_not() -> None:
    server = greeted()
    for number in range(1, 4002, 2):
        server.connection.receive(open_stream(number) + frames.rst_stream(number, frames.CANCEL))
    assert server.goaway() == ENHANCE_YOUR_CALM
    server = greeted()
    for count, number in enumerate(range(1, 12001, 4)):
        server.connection.receive(open_stream(number) + frames.rst_stream(number, frames.CANCEL))
        server.connection.receive(open_stream(number + 2, END_HEADERS | END_STREAM))
        server.answer(server.taken[-1], b"")
        assert not server.connection.closed, count


def test_headers_over_the_limit_are_told_to_the_application() -> None:
    theirs = hpack.encode([*HEADERS, *((b"x", b"y" * 50) for _ in range(60))])
    server = greeted()
    server.connection.receive(open_stream(block=theirs))
    assert server.taken[0].request.too_large


def ticked(server: Server, *times: float) -> Server:
    for time in times:
        server.connection.tick(time)
    return server


def test_an_idle_connection_is_closed_and_a_used_one_is_not() -> None:
    server = ticked(greeted(), 1.0, 59.0)
    server.connection.receive(open_stream(1, END_HEADERS | END_STREAM))
    server.answer(server.taken[0], b"")
    ticked(server, 61.0, 118.0)
    assert server.goaway() is None
    ticked(server, 122.0, 125.0)
    assert server.goaway() == frames.NO_ERROR
    assert server.connection.closed


@pytest.mark.parametrize("data", [b"", frames.PREFACE[:5], GREETING + b"\0", GREETING + open_stream(flags=0)])
def test_what_does_not_arrive_in_time_costs_the_connection(data: bytes) -> None:
    server = Server()
    server.connection.receive(data)
    ticked(server, 9.0)
    assert not server.connection.closed
    ticked(server, 11.0)
    assert server.connection.broken


def test_a_slow_request_is_told_to_its_handler_unless_it_may_take_its_time() -> None:
    server = greeted()
    server.connection.receive(open_stream(1) + open_stream(3))
    server.taken[1].stream.may_be_slow = True
    ticked(server, 9.0, 11.0)
    assert [taken.slow for taken in server.taken] == [1, 0]


def test_who_does_not_take_its_answer_is_cut_off() -> None:
    server = greeted()
    server.connection.receive(open_stream(1, END_HEADERS | END_STREAM))
    server.answer(server.taken[0], b"x" * 100_000)
    server.said()
    ticked(server, 1.0, 9.0)
    server.connection.receive(frames.window_update(0, 10))
    server.connection.receive(frames.window_update(1, 10))
    server.said()
    ticked(server, 12.0, 21.0)
    assert not server.connection.closed
    ticked(server, 23.0)
    assert server.connection.broken
    assert server.taken[0].closed
    assert server.budget.used == 0


def test_a_silent_peer_with_open_streams_is_asked_for_a_sign_of_life() -> None:
    server = greeted()
    server.connection.receive(open_stream(1, END_HEADERS | END_STREAM))
    ticked(server, 61.0, 62.0)
    ((kind, _, _, payload),) = server.said()
    assert kind == PING
    server.connection.receive(frame(PING, frames.ACK, 0, payload))
    ticked(server, 75.0, 121.0)
    assert not server.connection.closed
    ticked(server, 123.0, 133.0)
    assert server.connection.broken
