"""A run that is slower so far than earlier ones is slower to its target where that was so among them, only there."""

from __future__ import annotations

import pytest

from tiercel.broker.scheduling.forecast.work import PastCurve, work_to
from tiercel.broker.what_if.progress import in_view_of

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
