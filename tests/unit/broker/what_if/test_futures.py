"""What a job still needs, drawn from a forecast in view of what it has outlived."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.broker.what_if.test_answer import CURVE, job
from tiercel.broker.scheduling.forecast.work import Forecast
from tiercel.broker.what_if.futures import drawn_work, future, rest_of
from tiercel.core.jobs import Observation

CHANCES = [(number + 0.5) / 10 for number in range(10)]
LIKELY_TEN = Forecast((10.0, 30.0), (0.9, 0.1), 0.0)


def test_a_run_that_outlived_what_was_likely_may_end_anywhere_up_to_what_is_left() -> None:
    drawn = [drawn_work(LIKELY_TEN, 12.0, chance) for chance in CHANCES]
    assert drawn == pytest.approx([*(13.0 + 2.0 * number for number in range(9)), 30.45])


def test_half_of_the_futures_come_before_what_is_likely_and_half_after() -> None:
    alike = Forecast((8.0, 9.0, 10.0, 11.0, 12.0), (0.1, 0.2, 0.4, 0.2, 0.1), 0.0)
    drawn = [drawn_work(alike, 0.0, chance) or 0.0 for chance in CHANCES]
    assert (drawn[4] + drawn[5]) / 2 == pytest.approx(10.0)
    assert [a + b for a, b in zip(drawn, reversed(drawn), strict=True)] == pytest.approx([20.0] * 10, rel=0.01)
    certain = [drawn_work(Forecast((10.0,), (1.0,), 0.0), 0.0, chance) or 0.0 for chance in CHANCES]
    assert min(certain) == pytest.approx(10.0 - 0.27)
    assert max(certain) == pytest.approx(10.0 + 0.27)


def test_the_chance_of_never_grows_with_what_was_outlived() -> None:
    doubtful = Forecast((10.0, 30.0), (0.4, 0.4), 0.2)
    never = [sum(drawn_work(doubtful, spent, chance) is None for chance in CHANCES) for spent in (0.0, 12.0, 28.0)]
    assert never == sorted(never)
    assert (never[0], never[-1]) == (2, 5)


def test_a_run_that_outlived_everything_may_last_as_long_again_unless_it_never_could() -> None:
    drawn = [drawn_work(LIKELY_TEN, 40.0, chance) or 0.0 for chance in CHANCES]
    assert drawn == sorted(drawn)
    assert drawn[0] > 40.0
    assert drawn[-1] < 120.0
    assert drawn_work(Forecast((), (), 1.0), 40.0, 0.0) is None


def test_a_job_that_goes_on_after_its_tiers_ends_with_its_last_epoch_however_often_it_reports() -> None:
    seen = tuple(Observation(0.0, 1 + at // 3, 0.5 + 0.01 * at, 2.0 + at) for at in range(12))
    view = replace(job("a"), observations=seen, cpu_seconds=13.5, continues=True)
    # An epoch takes three reports of a CPU second each, and 37 of 40 are left after the third.
    told = future(view, rest_of(view, (CURVE,), ()), 0.5, 0.0)
    assert told.work[-1] == pytest.approx(10.0 + 37 * 3.0)


def test_one_that_has_not_reported_ends_when_earlier_runs_did() -> None:
    view = replace(job("a"), continues=True)
    assert future(view, rest_of(view, (CURVE,), ()), 0.5, 0.0).work[-1] == pytest.approx(CURVE.curve[-1].cpu_seconds)


def test_a_tier_comes_with_a_report_and_no_earlier_than_the_next_one() -> None:
    view = job("a", spent=19.0)  # reported at 18, a report before the first tier in all earlier runs
    told = future(view, rest_of(view, (CURVE,), ()), 0.0, 0.0)
    reached = next(work for work, value in zip(told.work, told.values, strict=True) if value >= 0.8)
    assert reached == pytest.approx(20.0)
