from __future__ import annotations

import math

import pytest

from testing.scheduling import reports
from tiercel.broker.scheduling.slaq.prediction import predicted_gains
from tiercel.core.jobs import Direction, Observation


def gains(
    observations: tuple[Observation, ...],
    *,
    direction: Direction = Direction.MAX,
    cores: float = 1.0,
    horizon: float = 5.0,
) -> tuple[float, ...] | None:
    return predicted_gains(observations, direction, cores=cores, horizon=horizon, recent=20)


def exponential(count: int, decay: float) -> tuple[Observation, ...]:
    """Quality 1 - exp(-decay * t), one CPU second a report."""
    return reports(*(1 - math.exp(-decay * second) for second in range(count)), first=0)


def test_the_gain_is_what_an_exponential_curve_has_left() -> None:
    # 19 s long with rate 1/19 a second is the rate 1.0 of the grid, hence exact: from 19 s to 24 s it rises by
    # exp(-1) - exp(-24/19), after 1 - exp(-1) so far; the next core's five seconds are worth less.
    found = gains(exponential(20, 1 / 19), cores=2.0)
    so_far = 1 - math.exp(-1)
    first = (math.exp(-1) - math.exp(-24 / 19)) / so_far
    second = (math.exp(-24 / 19) - math.exp(-29 / 19)) / so_far
    assert found == pytest.approx((first, second))


def test_an_inverse_curve_is_fitted_too() -> None:
    # 1 - 1/(1 + 3t/19), the rate 3.0 of the grid
    seen = reports(*(1 - 1 / (1 + 3 * second / 19) for second in range(20)), first=0)
    assert gains(seen) == pytest.approx(((1 / 4 - 1 / (1 + 3 * 24 / 19)) / (1 - 1 / 4),))


def test_neither_unit_nor_direction_of_the_metric_matter() -> None:
    up = exponential(20, 0.1)
    down = tuple(Observation(seen.at, seen.epoch, 700 - 300 * seen.value, seen.cpu_seconds) for seen in up)
    assert gains(down, direction=Direction.MIN) == pytest.approx(gains(up))


def test_whoever_levelled_off_gains_next_to_nothing() -> None:
    flat, rising = gains(exponential(40, 0.5)), gains(exponential(40, 0.02))
    assert flat is not None
    assert rising is not None
    assert flat[0] < 0.001 < 0.05 < rising[0]


def test_a_curve_that_falls_promises_nothing() -> None:
    assert gains(tuple(reports(*(1 - 0.01 * second for second in range(20)))), cores=2.5) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "seen",
    [
        (),
        reports(0.1, 0.2, 0.3),
        reports(0.1, 0.1, 0.1, 0.1, 0.1),
        tuple(Observation(0.0, step, 0.1 * step, 0.0) for step in range(9)),
        reports(0.1, math.nan, math.inf, 0.2, 0.3),
    ],
)
def test_nothing_is_predicted_of_too_little(seen: tuple[Observation, ...]) -> None:
    assert gains(seen) is None
