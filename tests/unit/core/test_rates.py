"""Rates: a burst, then evenly, and the time that says when the next is let through."""

from __future__ import annotations

import pytest

from tiercel.core.errors import InvalidSpecError
from tiercel.core.rates import RateLimit, parse_rate, retry_after_seconds


def test_a_burst_and_then_evenly() -> None:
    limit = RateLimit(10.0, burst=5.0)
    assert [limit.try_take(100.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert limit.seconds_until_next(100.0) == pytest.approx(0.1)
    assert not limit.try_take(100.05)
    assert limit.try_take(100.11)
    assert not limit.try_take(100.12)


def test_over_time_no_more_than_the_rate_and_the_burst() -> None:
    limit = RateLimit(50.0, burst=10.0)
    taken = sum(limit.try_take(5.0 + step / 1000) for step in range(10_000))
    assert 500 <= taken <= 511


def test_what_is_refused_costs_nothing() -> None:
    limit = RateLimit(1.0, burst=1.0)
    assert limit.try_take(0.0)
    assert not any(limit.try_take(0.5) for _ in range(1000))
    assert limit.try_take(1.0)


def test_long_silence_saves_up_one_burst() -> None:
    limit = RateLimit(100.0, burst=3.0)
    assert limit.try_take(0.0)
    assert sum(limit.try_take(1e6) for _ in range(10)) == 3


def test_another_rate_counts_on() -> None:
    limit = RateLimit(1.0, burst=1.0)
    assert limit.try_take(10.0)
    limit.change(10.0, 1.0)
    assert limit.try_take(11.0)
    limit.change(0.5, 1.0)
    assert not limit.try_take(11.0)


def test_seconds_to_wait_are_whole_and_never_none() -> None:
    assert [retry_after_seconds(seconds) for seconds in (0.0, 0.2, 1.0, 1.01, 59.5)] == [1, 1, 1, 2, 60]


@pytest.mark.parametrize(("text", "per_second"), [("100/s", 100.0), ("30/m", 0.5), (" 7200 / h ", 2.0), ("0.5/s", 0.5)])
def test_a_rate_is_read(text: str, per_second: float) -> None:
    assert parse_rate(text) == per_second


@pytest.mark.parametrize("text", ["", "100", "0/s", "-1/s", "nan/s", "1e9/s", "9999999/s", "1/d", "1/s/s", "x" * 1000])
def test_what_is_no_rate_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="such as 100/s") as refused:
        parse_rate(text)
    assert refused.value.field == "rate"
    assert len(refused.value.message) < 250
