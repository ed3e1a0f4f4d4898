"""A job that asks for much is not kept waiting for ever by small ones that keep coming, whatever the policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.simulation import GIB, steps
from tiercel.broker.scheduling.registry import BUILT_IN
from tiercel.broker.simulation import Scenario, Workload, equal_nodes, simulate
from tiercel.broker.simulation.accelerated import equipped
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob
from tiercel.core.jobs import Resources

SMALL_JOBS = 20
CORES = 8.0


def among_small_ones(small: Resources, large: Resources, memory_bytes: int, devices: int = 0) -> Scenario:
    """A job that needs more than two small ones leave, which overlap without end."""
    nodes = equal_nodes(1, CORES, memory_bytes)
    jobs = [
        PlannedJob(3.0 * number, asking(small, "small"), name=f"small{number}", tenant="small")
        for number in range(SMALL_JOBS)
    ]
    jobs.append(PlannedJob(4.0, asking(large, "large"), name="large", tenant="large"))
    return Scenario(nodes=tuple(equipped(each, devices) for each in nodes), jobs=ListedJobs(tuple(jobs)))


def asking(resources: Resources, name: str) -> Workload:
    """Five seconds of work on a core of its own."""
    return replace(steps(0.2, 0.4, 0.6, 0.95, name=name), resources=resources)


MEMORY = among_small_ones(Resources(1.0, 2 * GIB), Resources(1.0, 3 * GIB), 4 * GIB)
DEVICES = among_small_ones(Resources(1.0, GIB, 1), Resources(1.0, GIB, 2), 64 * GIB, devices=2)
DEVICE_MEMORY = among_small_ones(Resources(1.0, GIB, 1, 8 * GIB), Resources(1.0, GIB, 1), 64 * GIB, devices=1)


@pytest.mark.parametrize("what", [MEMORY, DEVICES, DEVICE_MEMORY], ids=["memory", "devices", "device memory"])
@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_it_begins_once_those_are_over_that_were_there_when_it_came(what: Scenario, policy: str) -> None:
    result = simulate(what, policy)
    (large,) = (each for each in result.jobs if each.name == "large")
    late = sum(each.finished_at < large.finished_at for each in result.jobs)
    assert late <= SMALL_JOBS / 2
