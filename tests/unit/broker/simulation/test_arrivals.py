from __future__ import annotations

import itertools
import random
import statistics

import pytest

from tiercel.broker.simulation.arrivals import AllAtOnce, Arrivals, Bursty, Fixed, Poisson, Uniform

PROCESSES: list[Arrivals] = [AllAtOnce(3.0), Fixed(4.0), Uniform(30.0), Poisson(0.5), Bursty(0.2, 5.0, 20.0, 5.0)]


@pytest.mark.parametrize("process", PROCESSES)
def test_times_never_fall_and_depend_on_the_source_alone(process: Arrivals) -> None:
    times = process.times(200, random.Random(1))
    assert len(times) == 200
    assert list(times) == sorted(times)
    assert times == process.times(200, random.Random(1))
    assert times[0] >= 0


def test_fixed_and_all_at_once() -> None:
    assert Fixed(4.0).times(3, random.Random(0)) == [0.0, 4.0, 8.0]
    assert AllAtOnce(3.0).times(2, random.Random(0)) == [3.0, 3.0]


def test_uniform_stays_within_its_bounds() -> None:
    times = Uniform(30.0).times(5000, random.Random(2))
    assert min(times) >= 0
    assert max(times) <= 30
    assert statistics.fmean(times) == pytest.approx(15.0, abs=0.5)


def gaps(process: Arrivals, count: int) -> list[float]:
    times = process.times(count, random.Random(3))
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_poisson_gaps_have_their_mean_and_vary_as_much() -> None:
    waits = gaps(Poisson(0.5), 20_000)
    assert statistics.fmean(waits) == pytest.approx(2.0, rel=0.03)
    assert statistics.stdev(waits) == pytest.approx(2.0, rel=0.03)


def test_bursty_arrivals_have_their_mean_rate_and_vary_more() -> None:
    # In the mean (20 s * 0.2 + 5 s * 5) / 25 s = 1.16 a second.
    waits = gaps(Bursty(0.2, 5.0, 20.0, 5.0), 40_000)
    assert 1 / statistics.fmean(waits) == pytest.approx(1.16, rel=0.05)
    assert statistics.stdev(waits) > 1.5 * statistics.fmean(waits)


def test_nothing_arrives_while_calm_if_calm_means_nothing() -> None:
    waits = gaps(Bursty(0.0, 100.0, 50.0, 1.0), 2000)
    assert max(waits) > 10
    assert statistics.median(waits) < 0.05
