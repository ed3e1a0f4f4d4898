from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tiercel.core.errors import TiercelError
from tiercel.serving.rest.messages import ByteBudget, HttpRequest
from tiercel.serving.rest.quick_receiver import QuickReceiver
from tiercel.serving.rest.receiver import HttpLimits

LIMITS = HttpLimits(header_bytes=4096, body_bytes=4096, connections=10, idle_timeout=1.0, read_timeout=1.0)


@st.composite
def http_requests(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """Bytes on the wire, the target and the body that are in them."""
    target = b"/" + draw(st.text("abc/%20", max_size=20)).encode()
    body = draw(st.binary(max_size=60))
    if draw(st.booleans()):
        wire = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    else:
        size = draw(st.integers(1, 20))
        chunks = [body[start : start + size] for start in range(0, len(body), size)]
        wire = b"Transfer-Encoding: chunked\r\n\r\n"
        wire += b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b" % (target, wire), target, body


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


@given(st.lists(http_requests(), min_size=1, max_size=4), st.lists(st.integers(0, 10**6), max_size=30))
def test_requests_are_the_same_however_the_bytes_are_split(
    requests: list[tuple[bytes, bytes, bytes]], cuts: list[int]
) -> None:
    budget = ByteBudget(10**6)
    receiver = QuickReceiver(LIMITS, budget)
    for part in split(b"".join(wire for wire, _, _ in requests), cuts):
        receiver.feed(part)
    found = [each for each in receiver.arrived if isinstance(each, HttpRequest)]
    assert [(each.target, bytes(each.body)) for each in found] == [(target, body) for _, target, body in requests]
    assert sum(each.reserved for each in found) == budget.used == sum(len(body) for _, _, body in requests)
    assert not receiver.receiving


@given(st.binary(max_size=400), st.lists(st.integers(0, 10**6), max_size=10))
def test_no_bytes_break_the_receiver(data: bytes, cuts: list[int]) -> None:
    budget = ByteBudget(10**6)
    receiver = QuickReceiver(LIMITS, budget)
    for part in split(data, cuts):
        receiver.feed(part)
    errors = [each for each in receiver.arrived if isinstance(each, TiercelError)]
    assert len(errors) <= 1
    receiver.forget()
    assert budget.used == sum(each.reserved for each in receiver.arrived if isinstance(each, HttpRequest))
