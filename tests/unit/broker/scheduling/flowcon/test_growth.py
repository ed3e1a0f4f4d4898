from __future__ import annotations

import math

import pytest

from tiercel.broker.scheduling.flowcon.growth import growth_efficiency, largest_value
from tiercel.core.jobs import Observation


def seen(at: float, value: float, cpu_seconds: float) -> Observation:
    return Observation(at, int(at), value, cpu_seconds)


# A loss that falls from 10; the intervals of 20 s before second 100 are (60, 80] and (80, 100].
LOSS = (
    seen(10, 10.0, 0),
    seen(65, 6.0, 5),
    seen(75, 4.0, 10),
    seen(85, 3.0, 12),
    seen(95, 1.0, 15),
)


def test_growth_is_the_change_of_the_interval_means_per_second_and_cpu_used() -> None:
    # E = value / 10; means 0.5 and 0.2: P = 0.3 / 20 = 0.015 per second.
    # From second 75 to 95, 5 CPU seconds in 20: a quarter of a core, an eighth of two. G = 0.015 / 0.125.
    assert growth_efficiency(LOSS, 100.0, 20.0, 2.0, largest_value(LOSS, 0.0)) == pytest.approx(0.12)


def test_the_sign_does_not_matter() -> None:
    rising = tuple(seen(entry.at, -entry.value, entry.cpu_seconds) for entry in LOSS)
    assert growth_efficiency(rising, 100.0, 20.0, 2.0, largest_value(rising, 0.0)) == pytest.approx(0.12)


def test_a_counter_that_began_at_zero_again_goes_on_counting() -> None:
    again = (*LOSS[:3], seen(85, 3.0, 1), seen(95, 1.0, 4))
    # 1 and 3 CPU seconds in 20: a tenth of two cores
    assert growth_efficiency(again, 100.0, 20.0, 2.0, 10.0) == pytest.approx(0.15)


@pytest.mark.parametrize(
    "observations",
    [
        (),
        LOSS[3:],  # nothing in the earlier interval
        LOSS[:3],  # nothing in the last one
        tuple(seen(entry.at, entry.value, 7.0) for entry in LOSS),  # no CPU used
        (*LOSS[:3], seen(85, math.nan, 12)),
    ],
)
def test_growth_is_unknown_without_reports_in_both_intervals_and_cpu_used(
    observations: tuple[Observation, ...],
) -> None:
    assert growth_efficiency(observations, 100.0, 20.0, 2.0, 10.0) is None


def test_the_largest_value_is_absolute_and_outlives_reports_that_were_dropped() -> None:
    assert largest_value((seen(1, -3.0, 0), seen(2, 2.0, 0), seen(3, math.inf, 0)), 0.0) == 3.0
    assert largest_value((seen(1, 2.0, 0),), 8.0) == 8.0
    assert largest_value((), 0.0) == 0.0
