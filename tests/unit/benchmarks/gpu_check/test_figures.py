"""Figures from what was told, on courses that were made up so that the right answer is known."""

from __future__ import annotations

import math

import pytest

from benchmarks.gpu_check.done import Done
from benchmarks.gpu_check.figures import Asked, followed_after, got_between, percentile, points, served


def course(share: float, step_seconds: float, seconds: float, after: Done | None = None) -> list[Done]:
    """Steps of a training that rests after each for as long as its share demands."""
    before = after or Done(100.0)
    rests = step_seconds / share - step_seconds
    return [
        Done(
            before.at + number * (step_seconds + rests),
            before.busy_seconds + number * step_seconds,
            before.steps + number,
        )
        for number in range(1, round(seconds * share / step_seconds) + 1)
    ]


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_a_share_is_device_time_by_time_that_passed_whatever_the_ends_of_the_stretch(share: float) -> None:
    told = course(share, 0.01, 20.0)
    got = got_between(told, 103.003, 117.777)
    assert got is not None
    assert got.share == pytest.approx(share)
    assert got.steps_per_second == pytest.approx(share / 0.01)


def test_fewer_than_three_steps_are_no_measurement() -> None:
    told = course(0.5, 1.0, 20.0)
    assert got_between(told, 100.0, 104.5) is None
    assert got_between(told, 100.0, 106.5) is not None
    assert got_between([], 0.0, 1e9) is None


@pytest.mark.parametrize("wanted", [0.45, 0.55])
def test_an_error_is_told_in_points_whichever_way_it_goes(wanted: float) -> None:
    assert points(0.5, wanted) == pytest.approx(5.0)


def test_a_change_is_followed_at_the_end_of_the_first_window_that_has_the_new_share() -> None:
    before = course(0.25, 0.01, 10.0)
    slow = course(0.25, 0.01, 2.0, before[-1])
    told = [*before, *slow, *course(0.5, 0.01, 6.0, slow[-1])]
    changed_at = before[-1].at + 0.001
    seconds = followed_after(told, changed_at, 0.5)
    assert seconds is not None
    # Two seconds late, one of the window, of which a fifth may still be at the old share.
    assert 2.7 <= seconds <= 3.1


def test_a_change_that_is_never_followed_or_not_for_a_whole_window_is_not_followed() -> None:
    before = course(0.25, 0.01, 10.0)
    assert followed_after([*before, *course(0.25, 0.01, 6.0, before[-1])], before[-1].at, 0.5) is None
    assert followed_after([*before, *course(0.5, 0.01, 0.8, before[-1])], before[-1].at, 0.5) is None


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile([3.0], 0.99) == 3.0


def test_a_second_in_which_an_answer_is_late_or_missing_is_out_of_objective() -> None:
    asked = [Asked(number / 10, 0.01) for number in range(40)]
    asked[15] = Asked(1.5, 0.2)
    asked[39] = Asked(3.9, math.inf)
    got = served(asked, 0.1)
    assert (got.windows, got.in_objective, got.failed) == (4, 0.5, 1)
    assert got.p50_ms == pytest.approx(10.0)
    assert math.isinf(got.p99_ms)


def test_an_answer_belongs_to_the_second_in_which_it_was_due_however_late_it_came() -> None:
    asked = [Asked(0.9, 5.0), *(Asked(number / 10, 0.01) for number in range(10, 20))]
    assert served(asked, 0.1).in_objective == 0.5
