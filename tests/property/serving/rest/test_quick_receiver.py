"""The shortcut accepts, refuses and yields exactly what the parser alone does, whatever comes in whatever pieces."""

from __future__ import annotations

import itertools
import re
from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from tiercel.core.errors import TiercelError
from tiercel.serving.rest.messages import ByteBudget, HttpRequest
from tiercel.serving.rest.quick_receiver import QuickReceiver, read_head
from tiercel.serving.rest.receiver import HttpLimits, Receiver

LIMITS = HttpLimits(header_bytes=200, body_bytes=60, connections=10, idle_timeout=1.0, read_timeout=1.0)
BUDGET = 150

LINES = [
    b"Host: h",
    b"User-Agent: wrk",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Connection: Upgrade\r\nUpgrade: h2c",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip",
    b"Expect: 100-continue",
    b"Expect: wonders",
    b"Content-Length: 3",
    b"Content-Length: 03",
    b"Content-Length: +3",
    b"Content-Length: 3 ",
    b"Content-Length: 3, 3",
    b"Content-Length: ",
    b"Content-Length: 99999999999999999999",
    b"X:",
    b"X: a\0b",
    b"X: " + b"a" * 190,
    b" folded: x",
    b"X : y",
    b"X: a\nY: b",
    b"Content-Encoding: gzip",
]
BODIES = [b"", b"abc", b"GET / HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"a" * 40, b"a" * 61, b"3\r\nabc\r\n0\r\n\r\n"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request, most often a good one with one or two odd headers."""
    body = draw(st.sampled_from(BODIES))
    lines = draw(st.lists(st.sampled_from(LINES), max_size=2))
    if draw(st.integers(0, 4)):
        lines = [line for line in lines if not line.startswith((b"Content-Length", b"Transfer"))]
        lines.insert(draw(st.integers(0, len(lines))), b"Content-Length: %d" % len(body))
    odd = draw(st.sampled_from([False, False, False, True]))
    method = draw(st.sampled_from([b"GET", b"HEAD", b"CONNECT", b"PRI", b"get"])) if odd else b"POST"
    version = draw(st.sampled_from([b"1.1", b"1.0", b"2.0", b"0.9"])) if odd else b"1.1"
    before = draw(st.sampled_from([b"", b"\r\n", b"\n", b"\r\n\r\n", b" "])) if odd else b""
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\n"])) if odd else b"\r\n"
    first = b"%b%b /m HTTP/%b%b" % (before, method, version, end)
    return first + b"".join(line + end for line in lines) + end + body


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """What arrives, in pieces: requests, most of them more than once, sometimes with a few bytes changed."""
    different = draw(st.lists(requests(), min_size=1, max_size=3))
    data = b"".join(draw(st.lists(st.sampled_from(different), min_size=1, max_size=5)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 3)) :]
    # Around the ends of heads is where it matters.
    ends = [match.end() + offset for match in re.finditer(b"\r\n\r\n", data) for offset in (-2, 0, 1, 3)]
    places = st.one_of(st.integers(0, len(data)), st.sampled_from([*ends, 0]))
    cuts = [0, *sorted(min(draw(places), len(data)) for _ in range(draw(st.integers(0, 6)))), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(cuts) if begin < end]


def seen(receiver: Receiver, budget: ByteBudget) -> Any:
    """All that the connection could see of a receiver."""
    arrived = [
        (item.head, bytes(item.body), item.reserved, item.arrived)
        if isinstance(item, HttpRequest)
        else (type(item), item.message)
        for item in receiver.arrived
    ]
    return arrived, receiver.receiving, receiver.continue_due, receiver.deaf, budget.used


@settings(max_examples=400)
@given(streams(), st.booleans(), st.booleans())
@example([b"GET / HTTP/1.1\r\n\r\n\r", b"\nGET / HTTP/1.1\r\n\r\n"], True, True)
@example(
    [b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", b"cPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"], True, True
)
@example(
    [b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 1\r\n\r\n", b"aGET / HTTP/1.1\r\n\r\n"], False, True
)
@example([b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"] * 3, True, True)
@example([b"POST / HTTP/1.1\r\nContent-Length: 40\r\n\r\n" + b"a" * 40] * 5, False, True)
@example([b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"] * 2, True, True)
def test_the_shortcut_makes_no_difference(pieces: list[bytes], handled: bool, whole: bool) -> None:
    read_head.cache_clear()
    budgets = ByteBudget(BUDGET), ByteBudget(BUDGET)
    quick, parser_alone = QuickReceiver(LIMITS, budgets[0]), Receiver(LIMITS, budgets[1])
    for now, piece in enumerate(pieces, 1):
        for receiver in (quick, parser_alone):
            request = quick.whole(piece, float(now)) if receiver is quick and whole else None
            if request is None:
                receiver.feed(piece, float(now))
            else:
                receiver.arrived.append(request)
        assert seen(quick, budgets[0]) == seen(parser_alone, budgets[1])
        if handled:
            for receiver, budget in zip((quick, parser_alone), budgets, strict=True):
                while receiver.arrived:
                    item = receiver.arrived.popleft()
                    budget.release(item.reserved if isinstance(item, HttpRequest) else 0)
    event(f"heads remembered: {read_head.cache_info().currsize > 0}")
    quick.forget()
    left = [item for item in quick.arrived if not isinstance(item, TiercelError)]
    assert budgets[0].used == sum(item.reserved for item in left)


@given(st.binary(max_size=80))
def test_a_head_is_read_from_nothing_but_a_whole_head(data: bytes) -> None:
    head = read_head(data)
    assert head is None or data.endswith(b"\r\n\r\n")
