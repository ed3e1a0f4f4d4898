"""Forecasts of the work to a target, worked out by hand where that is possible."""

from __future__ import annotations

import math

import pytest

from tiercel.broker.scheduling.forecast.work import (
    Forecast,
    PastCurve,
    forecast_from_history,
    forecast_from_samples,
    past_curve,
    remaining_after,
    work_to,
)
from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.core.jobs import Direction


def sure(*totals: float, never: float = 0.0) -> Forecast:
    weight = (1 - never) / len(totals)
    return Forecast(tuple(totals), (weight,) * len(totals), never)


# --- Looking ahead ----------------------------------------------------------------------------------------------------


def test_what_is_certain_is_worth_one_over_the_remaining_work() -> None:
    remaining = remaining_after(sure(10.0), 4.0)
    assert (remaining.rate, remaining.expected, remaining.low, remaining.high) == pytest.approx((1 / 6, 6, 6, 6))


def test_the_index_is_the_best_chance_per_cpu_second_that_stopping_in_time_gives() -> None:
    # Two possibilities, 2 and 18. Stopping after 2: 1/2 chance for 2 s = 1/4. Going on: certain, for 10 s on average.
    remaining = remaining_after(sure(2.0, 18.0), 0.0)
    assert remaining.rate == pytest.approx(0.25)
    assert (remaining.expected, remaining.low, remaining.high) == pytest.approx((10, 2, 18))
    # 4 and 6: stopping after 4 gives 1/8, going on 1 / (0.5 * 4 + 0.5 * 6) = 1/5.
    assert remaining_after(sure(4.0, 6.0), 0.0).rate == pytest.approx(0.2)


def test_a_job_that_may_never_get_there_is_worth_less() -> None:
    # Half a chance at 4 s; the other half works on for 4 s in vain: 0.5 / 4.
    remaining = remaining_after(sure(4.0, never=0.5), 0.0)
    assert (remaining.rate, remaining.never, remaining.expected) == pytest.approx((0.125, 0.5, 4))


def test_possibilities_that_were_outlived_are_dropped() -> None:
    before, after = remaining_after(sure(2.0, 18.0), 0.0), remaining_after(sure(2.0, 18.0), 3.0)
    assert after.rate == pytest.approx(1 / 15)
    assert after.rate < before.rate
    # never becomes likelier: of 0.4, 0.4 and 0.2 the first is gone
    assert remaining_after(Forecast((2.0, 18.0), (0.4, 0.4), 0.2), 3.0).never == pytest.approx(1 / 3)


def test_a_job_that_outlived_everything_counts_for_as_long_again() -> None:
    short, long = remaining_after(sure(2.0), 10.0), remaining_after(sure(2.0), 100.0)
    assert short.rate == pytest.approx(10 * long.rate)
    assert short.low < 10 < short.high


# --- Earlier runs -----------------------------------------------------------------------------------------------------

# Reaches 0.5 after 4 CPU seconds and 0.9 after 12.
EARLIER = PastCurve((2.0, 4.0, 8.0, 12.0), (0.1, 0.5, 0.7, 0.9))


def test_work_to_a_quality_lies_between_reports_on_a_line() -> None:
    assert work_to(EARLIER, 0.5) == 4.0
    assert work_to(EARLIER, 0.6) == pytest.approx(6.0)
    assert work_to(EARLIER, 0.05) == 2.0
    assert work_to(EARLIER, 0.91) is None


def test_a_past_run_is_turned_so_that_larger_is_better() -> None:
    run = PastRun((CurvePoint(1.0, 5.0), CurvePoint(2.0, 6.0), CurvePoint(3.0, 2.0), CurvePoint(4.0, math.nan)))
    assert past_curve(run, Direction.MIN) == PastCurve((1.0, 2.0, 3.0), (-5.0, -5.0, -2.0))
    assert past_curve(run, Direction.MAX) == PastCurve((1.0, 2.0, 3.0), (5.0, 6.0, 6.0))
    assert past_curve(PastRun((CurvePoint(1.0, 5.0),)), Direction.MAX) is None


def test_a_run_that_has_not_begun_needs_what_earlier_ones_needed() -> None:
    forecast = forecast_from_history([EARLIER, EARLIER], 0.9)
    assert forecast is not None
    remaining = remaining_after(forecast, 0.0)
    assert remaining.expected == pytest.approx(12.0, rel=0.1)
    assert remaining.low < 12.0 < remaining.high
    assert remaining.never == 0


def test_runs_that_levelled_off_below_a_target_say_that_it_is_never_met() -> None:
    flat = tuple(0.7 * (1 - math.exp(-x / 3)) for x in range(30))
    forecast = forecast_from_history([PastCurve(tuple(map(float, range(30))), flat)], 0.9)
    assert forecast is not None
    assert forecast.never > 0.7


def test_runs_that_ended_early_and_still_rose_say_that_it_takes_longer() -> None:
    rising = PastCurve((0.0, 5.0, 10.0), (0.0, 0.4, 0.8))
    forecast = forecast_from_history([rising], 0.9)
    assert forecast is not None
    assert forecast.never == 0.0
    assert forecast.totals == pytest.approx((13.0, 20.0, 40.0))


def test_nothing_is_said_without_earlier_runs() -> None:
    assert forecast_from_history([], 0.9) is None


# --- Putting together -------------------------------------------------------------------------------------------------


def test_samples_are_widened() -> None:
    forecast = forecast_from_samples([10.0], 0.5)
    assert forecast.totals == pytest.approx((10 * math.exp(-0.65), 10, 10 * math.exp(0.65)))
    assert forecast.weights == pytest.approx((0.25, 0.5, 0.25))


def test_many_possibilities_become_few_with_the_same_mean() -> None:
    samples = [float(number) for number in range(1, 101)]
    forecast = forecast_from_samples(samples, 0.0)
    assert len(forecast.totals) <= 13
    assert sum(forecast.weights) == pytest.approx(1.0)
    mean = sum(total * weight for total, weight in zip(forecast.totals, forecast.weights, strict=True))
    assert mean == pytest.approx(50.5)


# --- Programs that are like it ----------------------------------------------------------------------------------------


def known(differs: float, *ends: float) -> PastCurve:
    return PastCurve((1.0, *ends), (0.1, *(0.9 for _ in ends)), differs)


def test_a_program_that_is_like_it_tells_the_same_with_less_certainty() -> None:
    same, like = (forecast_from_history([known(differs, 10.0)] * 4, 0.9) for differs in (0.0, 0.4))
    assert same is not None
    assert like is not None
    sure_of, guess = remaining_after(same, 0.0), remaining_after(like, 0.0)
    assert guess.expected == pytest.approx(sure_of.expected, rel=0.05)
    assert guess.low < sure_of.low
    assert guess.high > sure_of.high


def test_that_another_program_never_got_there_counts_for_less() -> None:
    flat = ((1.0, 2.0, 5.0, 10.0), (0.1, 0.5, 0.5, 0.5))
    same = forecast_from_history([known(0.0, 10.0), PastCurve(*flat)], 0.9)
    like = forecast_from_history([known(0.6, 10.0), PastCurve(*flat, 0.6)], 0.9)
    assert same is not None
    assert like is not None
    assert 0 < like.never < same.never


def test_however_little_it_is_like_it_no_possibility_is_without_work() -> None:
    forecast = forecast_from_history([known(50.0, 10.0)], 0.9)
    assert forecast is not None
    assert forecast.totals[0] > 0
