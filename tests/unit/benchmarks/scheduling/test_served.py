from __future__ import annotations

import pytest

from benchmarks.scheduling.schedules import OBJECTIVE_SECONDS
from benchmarks.scheduling.served import served_of
from testing.load_record import LoadRecord, Request

BEGAN = 1000.0
LATE = 10 * OBJECTIVE_SECONDS


def asked(at: float, endpoint: str = "a", score: float = 1.0, latency: float = OBJECTIVE_SECONDS / 2) -> Request:
    return Request(BEGAN + at, endpoint, latency, 1, score)


def test_right_answers_in_time_count_and_others_do_not() -> None:
    record = LoadRecord([asked(0.1), asked(0.2, score=0.0), asked(0.3, latency=LATE), asked(0.4)])
    found = served_of(record, ["a", "b"], BEGAN, 1.0)
    assert found.quality == (0.5,)
    assert found.live == (1,)
    assert found.satisfied == (0,)


def test_endpoints_add_up_second_by_second() -> None:
    record = LoadRecord([asked(0.5), asked(1.5), asked(1.6, "b"), asked(1.7, "c"), asked(-0.5), asked(9.0)])
    found = served_of(record, ["a", "b"], BEGAN, 2.4)
    assert found.quality == (1.0, 2.0, 0.0)
    assert found.satisfied == found.live == (1, 2, 0)


def test_failures_are_told_and_worth_nothing() -> None:
    record = LoadRecord([asked(0.1)])
    record.add_failure(Request(BEGAN + 0.2, "a", 0.01, None, None), "no answer")
    found = served_of(record, ["a"], BEGAN, 1.0)
    assert (found.requests, found.failed) == (2, 1)
    assert found.quality == (0.5,)
    assert found.p99_ms == pytest.approx(500 * OBJECTIVE_SECONDS)
