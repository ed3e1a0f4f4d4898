from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from benchmarks.fuzz.answers import MalformedAnswerError, grpc_statuses, http_statuses
from benchmarks.fuzz.calls import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, frame, grpc_case, literal
from benchmarks.fuzz.mutation import Case
from benchmarks.fuzz.requests import rest_case

GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def error(status: int, body: bytes = b'{"error":"no"}') -> bytes:
    return b"HTTP/1.1 %d Why\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def test_several_answers_on_a_connection_are_read_and_the_interim_one_does_not_count() -> None:
    assert http_statuses(b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD + error(404)) == [200, 404]


def test_the_answer_to_head_has_a_length_and_no_body() -> None:
    assert http_statuses(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", head_only=True) == [200]


@pytest.mark.parametrize(
    "octets",
    [
        GOOD[:-1],
        GOOD + b"x",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        error(500),
        error(404, b"not found"),
        error(404, b'{"message":"no"}'),
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    ],
)
def test_what_is_no_answer_of_ours_is_told(octets: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        http_statuses(octets)


def trailers(status: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, literal([(b"grpc-status", status)]))


def test_the_status_of_a_call_and_of_a_broken_connection_is_found() -> None:
    answer = frame(HEADERS, END_HEADERS, 1, literal([(b":status", b"200")])) + frame(DATA, 0, 1, b"\0\0\0\0\0")
    assert grpc_statuses(frame(PING, 1, 0, b"12345678") + answer + trailers(b"0")) == [0]
    assert grpc_statuses(trailers(b"3") + frame(GOAWAY, 0, 0, bytes(8))) == [3, -1]


@pytest.mark.parametrize("octets", [b"\0\0\5", frame(DATA, 0, 1, b"12345")[:-1], frame(99, 0, 1), trailers(b"2")])
def test_frames_that_a_server_may_not_send_are_told(octets: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        grpc_statuses(octets)


@pytest.mark.parametrize("make", [rest_case, grpc_case])
def test_the_same_seed_makes_the_same_requests(make: Callable[[random.Random], Case]) -> None:
    first, second = ([make(source) for _ in range(200)] for source in (random.Random(5), random.Random(5)))
    assert first == second
    assert len(set(map(repr, first))) > 100
