"""A run that is slower so far than earlier ones is slower to its target where that was so among them, only there."""

from __future__ import annotations

import math

import pytest

from tiercel.broker.scheduling.forecast.work import PastCurve, work_to
from tiercel.broker.scheduling.history import MAX_POINTS
from tiercel.broker.what_if.progress import Pace, at_its_pace, by_report, in_view_of

QUALITY = (0.2, 0.4, 0.6, 0.8)


def totals(curves: list[PastCurve], progress: tuple[float, float] | None) -> list[float | None]:
    return [work_to(each, 0.8) for each in in_view_of(curves, 0.8, progress)]


def test_where_slow_runs_stay_slow_a_run_twice_as_slow_needs_twice_as_much() -> None:
    curves = [PastCurve(tuple(speed * at for at in (10.0, 20.0, 30.0, 40.0)), QUALITY) for speed in (0.5, 1.0, 2.0)]
    assert totals(curves, (0.4, 40.0)) == pytest.approx([80.0, 80.0, 80.0], rel=0.02)


def test_where_a_slow_beginning_tells_nothing_the_target_comes_when_it_did() -> None:
    curves = [PastCurve((begin / 2, begin, 300.0, 400.0), QUALITY) for begin in (10.0, 20.0, 40.0)]
    assert totals(curves, (0.4, 40.0)) == pytest.approx([400.0, 400.0, 400.0], rel=0.02)


def test_one_earlier_run_counts_by_the_part_of_the_way_that_lies_behind() -> None:
    curves = [PastCurve((10.0, 20.0, 30.0, 40.0), QUALITY)]
    assert totals(curves, (0.4, 40.0)) == pytest.approx([40.0 * 2**0.5])
    assert totals(curves, (0.2, 20.0)) == pytest.approx([40.0 * 2**0.25])


@pytest.mark.parametrize("progress", [None, (0.9, 30.0), (0.4, 0.0)], ids=["no report", "there already", "no work"])
def test_without_progress_that_tells_anything_earlier_runs_are_as_they_were(
    progress: tuple[float, float] | None,
) -> None:
    curves = [PastCurve((10.0, 20.0, 30.0, 40.0), QUALITY), PastCurve((5.0, 9.0), (0.1, 0.3))]
    assert list(in_view_of(curves, 0.8, progress)) == curves


def test_an_earlier_run_that_ended_before_is_held_against_the_part_it_shares() -> None:
    short = PastCurve((5.0, 10.0), (0.2, 0.4))
    (stretched,) = in_view_of([short], 0.8, (0.4, 40.0))
    assert stretched.spent == pytest.approx((10.0, 20.0))


def test_who_needs_twice_the_cpu_for_each_report_needs_twice_as_much_after_the_first() -> None:
    curves = [PastCurve(tuple(3.0 + at for at in range(40)), tuple(at / 40 for at in range(40)))]
    (paced,) = at_its_pace(curves, [5.0 + 2.0 * at for at in range(30)])
    assert paced.spent[0] == 5.0
    assert paced.spent[-1] == pytest.approx(5.0 + 39 * 2.0**0.8)


def test_a_few_reports_tell_less_of_the_pace_and_one_tells_how_long_the_start_was() -> None:
    curves = [PastCurve((3.0, 4.0, 5.0, 6.0), QUALITY)]
    totals = [at_its_pace(curves, own)[0].spent[-1] for own in ([], [5.0], [5.0, 7.0], [5.0, 7.0, 9.0, 11.0])]
    assert totals == pytest.approx([6.0, 8.0, 5.0 + 3 * 2 ** (1 / 3), 5.0 + 3 * 2**0.6])


def test_steps_of_a_curve_that_was_thinned_are_no_pace() -> None:
    thinned = PastCurve(tuple(3.0 * at for at in range(1, MAX_POINTS + 1)), tuple(at / 100 for at in range(MAX_POINTS)))
    assert at_its_pace([thinned], [3.0, 4.0, 5.0]) == (thinned,)


def test_a_run_that_has_not_reported_is_taken_at_the_pace_of_those_beside_it() -> None:
    curves = [PastCurve((3.0, 4.0, 5.0, 6.0), QUALITY)]
    beside = Pace(math.log(1.5), math.log(2.0), 0.8)
    (paced,) = at_its_pace(curves, [], beside)
    assert paced.spent == pytest.approx((4.5, 6.5, 8.5, 10.5))
    (reported,) = at_its_pace(curves, [5.0, 6.0], beside)  # one step, which counts a third
    assert reported.spent == pytest.approx([5.0 + at * 2.0 ** (2 / 3) for at in range(4)])


def test_a_start_that_takes_longer_than_earlier_ones_is_not_over_yet() -> None:
    (paced,) = at_its_pace([PastCurve((3.0, 4.0, 5.0, 6.0), QUALITY)], [], spent=7.0)
    assert paced.spent == (7.0, 8.0, 9.0, 10.0)


def test_a_target_between_two_reports_was_reached_by_the_second() -> None:
    curve = by_report(PastCurve((1.0, 2.0, 6.0), (0.2, 0.4, 0.6)))
    assert [work_to(curve, target) for target in (0.1, 0.2, 0.3, 0.4, 0.41, 0.6, 0.7)] == [1, 1, 2, 2, 6, 6, None]
