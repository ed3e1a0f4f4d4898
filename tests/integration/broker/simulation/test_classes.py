"""Jobs of a higher class go before others under every policy, and have room made for them where they may."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.simulation import GIB, steps
from tiercel.broker.scheduling.registry import BUILT_IN
from tiercel.broker.simulation import Scenario, Workload, equal_nodes, simulate
from tiercel.broker.simulation.accelerated import equipped
from tiercel.broker.simulation.result import JobOutcome
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob
from tiercel.core.jobs import JobState, Resources
from tiercel.core.tenants import PriorityClass

URGENT = PriorityClass("urgent", 100)
PATIENT = replace(URGENT, preempts=False)
LONG = (*(0.01 * number for number in range(1, 41)), 0.95)


def long(memory_gib: int = 2, devices: int = 0) -> Workload:
    """A minute of work, with a report each second."""
    resources = Resources(1.0, memory_gib * GIB, devices)
    return replace(steps(*LONG, name=f"long{memory_gib}"), resources=resources)


def short(memory_gib: int = 3, devices: int = 0) -> Workload:
    return replace(steps(0.2, 0.4, 0.95, name="short"), resources=Resources(1.0, memory_gib * GIB, devices))


def outcomes(policy: str, *jobs: PlannedJob, memory_gib: int = 8, devices: int = 0) -> dict[str, JobOutcome]:
    nodes = tuple(equipped(each, devices) for each in equal_nodes(1, 2.0, memory_gib * GIB))
    return {each.name: each for each in simulate(Scenario(nodes=nodes, jobs=ListedJobs(jobs)), policy).jobs}


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_no_more_is_suspended_than_need_be_and_it_goes_on_where_it_was(policy: str) -> None:
    low = [PlannedJob(0.0, long(), name=f"low{number}", tenant="low") for number in range(3)]
    urgent = PlannedJob(10.0, short(4), name="urgent", tenant="high", priority_class=URGENT)
    found = outcomes(policy, *low, urgent)
    assert found["urgent"].completion_seconds < 20.0
    attempts = sorted(len(found[job.name].nodes) for job in low)
    assert attempts == [1, 1, 2], "of 8 GiB 2 were free"
    assert all(each.state is JobState.COMPLETED for each in found.values())


@pytest.mark.parametrize("policy", ["fair", "utility"])
def test_accelerators_are_made_room_on_as_well(policy: str) -> None:
    low = [PlannedJob(0.0, long(1, devices=1), name=f"low{number}") for number in range(2)]
    urgent = PlannedJob(10.0, short(1, devices=1), name="urgent", priority_class=URGENT)
    found = outcomes(policy, *low, urgent, devices=2)
    assert found["urgent"].completion_seconds < 20.0
    assert sorted(len(found[job.name].nodes) for job in low) == [1, 2]


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_one_that_may_not_preempt_still_goes_first(policy: str) -> None:
    running = PlannedJob(0.0, long(8), name="running")
    waiting = [PlannedJob(1.0, short(8), name=f"waiting{number}") for number in range(2)]
    patient = PlannedJob(10.0, short(8), name="patient", priority_class=PATIENT)
    found = outcomes(policy, running, *waiting, patient)
    assert len(found["running"].nodes) == 1
    assert all(found["patient"].finished_at < found[job.name].finished_at for job in waiting)


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_of_a_node_the_higher_class_has_what_it_can_use(policy: str) -> None:
    low = [PlannedJob(0.0, long(1), name=f"low{number}") for number in range(4)]
    urgent = PlannedJob(10.0, short(1), name="urgent", priority_class=URGENT)
    alone = outcomes(policy, replace(urgent, arrives_at=0.0))["urgent"].completion_seconds
    assert outcomes(policy, *low, urgent)["urgent"].completion_seconds <= 1.35 * alone + 1.0
