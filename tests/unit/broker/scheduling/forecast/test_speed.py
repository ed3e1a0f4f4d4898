"""What a job's reports say about its use of CPU and accelerators."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from testing.scheduling import job
from tiercel.broker.scheduling.forecast.speed import Needs
from tiercel.broker.scheduling.forecast.speed import needs_of as needs_of_job
from tiercel.core.jobs import Observation, Resources


def needs_of(observations: tuple[Observation, ...], cores: float, **changes: Any) -> Needs:
    view = replace(job("j", observations=observations), resources=Resources(cores, accelerators=1), **changes)
    return needs_of_job(view)


def reported(*, seconds: float, cpu: float, device: float, count: int = 8) -> tuple[Observation, ...]:
    """Epochs that take so long and use so much."""
    return tuple(Observation(n * seconds, n, 0.5, n * cpu, n * device) for n in range(1, count + 1))


def test_a_job_that_overlaps_uses_as_much_of_the_cpu_as_its_device_lets_it() -> None:
    # Two device seconds and half a CPU second an epoch: with a device of its own two seconds, a quarter of a core.
    needs = needs_of(reported(seconds=2.0, cpu=0.5, device=2.0), cores=4.0)
    assert (needs.cores, needs.fraction, needs.most_fraction) == (0.25, 1.0, 1.0)
    assert needs.most_cores == pytest.approx(0.3)
    assert needs.overlaps
    assert needs.cores_with(0.5) == pytest.approx(0.125)
    assert needs.accelerator_per_cpu == 4.0


def test_one_that_waits_for_its_cores_leaves_its_device() -> None:
    needs = needs_of(reported(seconds=1.0, cpu=1.0, device=0.2), cores=1.0)
    assert needs.cores == 1.0
    assert needs.fraction == pytest.approx(0.2)
    assert needs.cores_with(0.1) == pytest.approx(0.5)


def test_one_that_uses_both_in_turn_is_told_by_its_fastest_step() -> None:
    # A second of each: in turn that takes two, which is what it took.
    needs = needs_of(reported(seconds=2.0, cpu=1.0, device=1.0), cores=1.0)
    assert not needs.overlaps
    assert (needs.cores, needs.fraction, needs.most_cores, needs.most_fraction) == (0.5, 0.5, 1.0, 1.0)
    # With half of the device: one second on the CPU and two on it.
    assert needs.cores_with(0.5) == pytest.approx(1 / 3)
    # One that was quicker just once cannot do one after the other.
    slow = reported(seconds=2.0, cpu=1.0, device=1.0)
    last = Observation(slow[-1].at + 1.05, 9, 0.5, 9.0, 9.0)
    assert needs_of((*slow, last), cores=1.0).overlaps


def test_others_on_the_device_do_not_change_what_a_job_needs() -> None:
    alone, beside = (needs_of(reported(seconds=s, cpu=0.5, device=2.0), cores=4.0) for s in (2.0, 7.0))
    assert alone == beside


@pytest.mark.parametrize(
    "observations",
    [
        (),
        reported(seconds=1.0, cpu=1.0, device=1.0, count=3),
        reported(seconds=1.0, cpu=1.0, device=0.0),
        reported(seconds=0.0, cpu=1.0, device=1.0),
        reported(seconds=math.inf, cpu=1.0, device=1.0),
        reported(seconds=1.0, cpu=math.nan, device=1.0),
    ],
)
def test_what_is_not_known_is_what_it_asks_for(observations: tuple[Observation, ...]) -> None:
    needs = needs_of(observations, cores=2.0)
    assert (needs.cores, needs.fraction, needs.most_cores, needs.most_fraction) == (2.0, 1.0, 2.0, 1.0)


def test_before_there_are_reports_what_it_has_used_altogether_tells() -> None:
    needs = needs_of((), cores=1.0, cpu_seconds=2.0, accelerator_seconds=8.0)
    assert (needs.cores, needs.fraction) == (0.25, 1.0)


def test_a_job_that_uses_no_accelerators_needs_the_cores_that_it_asks_for_whatever_the_accelerators_do() -> None:
    needs = needs_of_job(job("j", cpu_cores=2.0))
    assert (needs.cores, needs.most_cores, needs.fraction, needs.accelerator_per_cpu) == (2.0, 2.0, 0.0, 0.0)
    assert needs.cores_with(0.1) == 2.0
