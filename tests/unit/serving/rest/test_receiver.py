from __future__ import annotations

import pytest

from tiercel.core.errors import (
    CapacityExceededError,
    InvalidRequestError,
    TiercelError,
)
from tiercel.serving.rest.messages import ByteBudget, HttpRequest
from tiercel.serving.rest.quick_receiver import QuickReceiver
from tiercel.serving.rest.receiver import HttpLimits, Receiver

LIMITS = HttpLimits(header_bytes=300, body_bytes=100, connections=10, idle_timeout=1.0, read_timeout=1.0)


@pytest.fixture(autouse=True, params=[Receiver, QuickReceiver])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is about both: the parser alone, and with the shortcut."""
    monkeypatch.setitem(globals(), "Receiver", request.param)


def received(*parts: bytes, budget: ByteBudget | None = None) -> list[HttpRequest | TiercelError]:
    receiver = Receiver(LIMITS, budget or ByteBudget(1000))
    for part in parts:
        receiver.feed(part)
    return list(receiver.arrived)


def the_request(*parts: bytes) -> HttpRequest:
    (request,) = received(*parts)
    assert isinstance(request, HttpRequest)
    return request


def test_a_request_with_a_body() -> None:
    request = the_request(b"POST /v2/x?a=b HTTP/1.1\r\nHost: h\r\nX-Y:  z \r\nContent-Length: 3\r\n\r\nabc")
    assert (request.method, request.target, bytes(request.body)) == (b"POST", b"/v2/x?a=b", b"abc")
    assert request.headers[b"x-y"].strip() == b"z"
    assert request.head.keep_alive


def test_repeated_headers_are_joined() -> None:
    assert the_request(b"GET / HTTP/1.1\r\nA: 1\r\nA: 2\r\n\r\n").headers[b"a"] == b"1, 2"


def test_pipelined_requests_stay_in_order() -> None:
    found = received(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTT", b"P/1.1\r\n\r\n")
    assert [each.target for each in found if isinstance(each, HttpRequest)] == [b"/1", b"/2", b"/3"]


def test_chunked_bodies_are_joined_and_trailers_dropped() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    request = the_request(head, b"3\r\nabc\r\n", b"2;ext=1\r\nde\r\n0\r\nOrigin: evil\r\n\r\n")
    assert bytes(request.body) == b"abcde"
    assert b"origin" not in request.headers


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", False),
    ],
)
def test_who_wants_the_connection_kept(head: bytes, keeps: bool) -> None:
    assert the_request(head).head.keep_alive is keeps


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"a" * 101, 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nExpect: wonders\r\n\r\n", 417),
        (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 300 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: aaaaaaaa\r\n" * 40 + b"\r\n", 431),
    ],
)
def test_what_cannot_be_read_is_refused_once_and_ends_the_listening(data: bytes, status: int) -> None:
    budget = ByteBudget(1000)
    found = received(data, b"GET / HTTP/1.1\r\n\r\n", budget=budget)
    assert len(found) == 1
    assert isinstance(found[0], TiercelError)
    assert found[0].http_status == status
    assert budget.used == 0


def test_headers_that_never_end_are_refused() -> None:
    found = received(b"GET / HTTP/1.1\r\nA: ", *[b"aaaaaaaaaa"] * 40)
    assert isinstance(found[-1], TiercelError)
    assert found[-1].http_status == 431


def test_many_small_requests_in_one_read_are_not_taken_for_large_headers() -> None:
    request = b"GET / HTTP/1.1\r\nA: b\r\n\r\n"
    whole = request * 50
    found = received(whole + request[:10], request[10:])
    assert len(found) == 51
    assert all(isinstance(each, HttpRequest) for each in found)


def test_an_error_comes_after_what_arrived_before_it() -> None:
    found = received(b"GET /1 HTTP/1.1\r\n\r\nnonsense\r\n\r\n")
    assert [type(each) for each in found] == [HttpRequest, InvalidRequestError]


def test_bodies_share_a_budget() -> None:
    budget = ByteBudget(150)
    head = b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n"
    (first,) = received(head + b"a" * 100, budget=budget)
    assert isinstance(first, HttpRequest)
    assert first.reserved == budget.used == 100
    assert isinstance(received(head, budget=budget)[0], CapacityExceededError)
    budget.release(first.reserved)
    assert isinstance(received(head + b"a" * 100, budget=budget)[0], HttpRequest)


def test_forgetting_an_unfinished_request_gives_its_bytes_back() -> None:
    budget = ByteBudget(150)
    receiver = Receiver(LIMITS, budget)
    receiver.feed(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc")
    assert (budget.used, receiver.receiving) == (100, True)
    receiver.forget()
    assert (budget.used, receiver.receiving) == (0, False)


def test_continue_is_due_until_the_body_begins() -> None:
    receiver = Receiver(LIMITS, ByteBudget(1000))
    due: list[bool] = []
    for part in (b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", b"a", b"b"):
        receiver.feed(part)
        due.append(receiver.continue_due)
    assert due == [True, False, False]
    assert len(receiver.arrived) == 1
