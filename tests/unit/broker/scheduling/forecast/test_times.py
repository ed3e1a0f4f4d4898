"""When tiers may be reached, worked out by hand."""

from __future__ import annotations

import pytest

from testing.scheduling import job, reports, tiers
from tiercel.broker.scheduling.forecast.times import tier_times
from tiercel.broker.scheduling.interface import CurvePoint, PastRun

PAST = PastRun(tuple(CurvePoint(float(spent), spent / 100) for spent in range(1, 91)))


def test_earlier_runs_say_how_much_work_is_left_and_the_pace_how_long_that_takes() -> None:
    seen = reports(0.1, 0.2, 0.3, cpu_per_report=10.0)
    found = tier_times(job("j", ladder=tiers(0.2, 0.5, 0.8, reached=1), observations=seen), (PAST,))
    assert [time.number for time in found] == [2, 3]
    for time, work in zip(found, (50.0 - 30.0, 80.0 - 30.0), strict=True):
        assert time.low < time.expected < time.high
        assert time.expected * 10.0 == pytest.approx(work, rel=0.35)
        assert time.never == 0.0


def test_of_what_nobody_knows_nothing_is_said() -> None:
    seen = reports(0.1, 0.2)
    assert tier_times(job("j", ladder=tiers(0.5), observations=seen), ()) == ()
    assert tier_times(job("j", ladder=tiers(0.5), observations=seen[:1]), (PAST,)) == ()
    assert tier_times(job("j", ladder=tiers(0.5), observations=()), (PAST,)) == ()
    flat = PastRun(tuple(CurvePoint(float(spent), 0.3) for spent in range(1, 91)))
    assert tier_times(job("j", ladder=tiers(0.5), observations=seen), (flat,) * 20) == ()
