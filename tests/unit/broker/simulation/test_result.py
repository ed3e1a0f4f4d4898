from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.simulation import scenario, steps
from tiercel.broker.simulation import Result, simulate
from tiercel.broker.simulation.result import ClassCount, Pass


@pytest.fixture(scope="module")
def shared() -> Result:
    """Two that share a core: tiers at 4 s and 6 s, and the second one never reaches its second tier."""
    return simulate(scenario((0, steps(0.5, 0.9)), (0, steps(0.5, 0.6))), "fair", seed=3)


def test_means_are_over_jobs_that_reached_the_tier(shared: Result) -> None:
    assert shared.times_to_tier(1) == (4.0, 4.0)
    assert shared.mean_time_to_tier(2) == 6.0
    assert math.isnan(shared.mean_time_to_tier(3))
    assert shared.missed_tiers() == 0


def test_makespan_and_completion(shared: Result) -> None:
    # The first waits until its model is delivered, half a second after its last report; the second is done with it.
    assert (shared.makespan, shared.mean_completion) == pytest.approx((6.5, (6.5 + 6.0) / 2))


def test_a_job_is_slower_than_it_would_be_alone(shared: Result) -> None:
    assert [job.slowdown for job in shared.jobs] == pytest.approx([6.5 / 3, 2.0])


def test_a_tier_that_could_have_been_reached_counts_as_missed(shared: Result) -> None:
    first = shared.jobs[0]
    short = replace(first, tiers=(first.tiers[0], replace(first.tiers[1], reached_seconds=None)))
    assert replace(shared, jobs=(short, *shared.jobs[1:])).missed_tiers() == 1


def test_how_long_a_decision_took_does_not_make_results_differ(shared: Result) -> None:
    slower = tuple(replace(decision, seconds=9.0) for decision in shared.decisions)
    assert replace(shared, decisions=slower) == shared
    assert replace(shared, decisions=slower).decision_seconds()[-1] == 9.0
    assert Pass(0.0, 1, 1, 0.5) != Pass(0.0, 1, 2, 0.5)


def test_satisfied_endpoints_are_counted_over_the_last_part(shared: Result) -> None:
    counts = tuple(ClassCount(float(second), 0, int(second >= 6), 0) for second in range(10))
    assert replace(shared, class_counts=counts).mean_satisfied() == 1.0
    assert replace(shared, class_counts=counts).mean_satisfied(from_part=0.0) == pytest.approx(0.4)
