from __future__ import annotations

import pytest

from tiercel.serving.scheduling.interface import BATCHES, ArrivalRate, Profile


def affine(fixed: float, per_row: float, name: str = "v", accuracy: float = 0.9) -> Profile:
    return Profile(name, accuracy, tuple(fixed + per_row * batch for batch in BATCHES))


def test_the_fit_finds_the_line_that_durations_lie_on() -> None:
    profile = affine(0.01, 0.002)
    assert profile.fixed == pytest.approx(0.01)
    assert profile.per_row == pytest.approx(0.002)


def test_durations_between_measured_sizes_lie_on_a_straight_line_and_beyond_them_on_the_fit() -> None:
    profile = Profile("v", 0.9, (1.0, 2.0, 6.0))
    assert [profile.seconds_for(rows) for rows in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 6.0]
    assert affine(1.0, 1.0).seconds_for(100) == pytest.approx(101.0)


def test_the_largest_batch_within_a_time_is_1_when_none_fits() -> None:
    profile = affine(0.0, 1.0)
    assert profile.largest_within(9.0) == 8
    assert profile.largest_within(0.5) == 1


@pytest.mark.parametrize("seconds", [(), tuple(range(1, 9))])
def test_a_profile_has_a_duration_for_each_batch(seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="needs 1 to 7 durations"):
        Profile("v", 0.9, seconds)


def test_the_arrival_rate_is_right_after_the_first_seconds_and_follows_a_change() -> None:
    rate = ArrivalRate(2.0)
    assert rate.at(5.0) == 0.0
    for number in range(100):
        rate.add(10.0 + number * 0.01)
    assert rate.at(11.0) == pytest.approx(100.0, rel=0.15)
    assert rate.at(13.0) == pytest.approx(100.0 * (1 - 0.59) * 0.37 / 0.78 * 1.22, rel=0.3)
    assert rate.at(40.0) < 1e-3
