"""Accelerators that no job asks for change nothing: whatever the policy, the same jobs run in the same way."""

from __future__ import annotations

import pytest

from tiercel.broker.scheduling.registry import BUILT_IN
from tiercel.broker.simulation import Result, Scenario, simulate
from tiercel.broker.simulation.accelerated import with_accelerators
from tiercel.broker.simulation.presets import heavy_tailed_kinds, training, with_endpoints

SEED = 3


def scenario() -> Scenario:
    """Thirty jobs of very different length on three nodes that also answer requests."""
    jobs = training(heavy_tailed_kinds(), 30, 3, load=1.5)
    return with_endpoints(jobs, load=0.2, duration_seconds=90.0)


def what_happened(result: Result) -> list[object]:
    jobs = [
        (job.id, job.nodes, job.migrations, job.started_at, job.finished_at, job.cpu_seconds, job.tiers)
        for job in result.jobs
    ]
    endpoints = [(each.name, each.answered, each.in_objective, each.cpu_seconds) for each in result.endpoints]
    return [jobs, endpoints, [(made.at, made.jobs, made.changed) for made in result.decisions]]


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_devices_that_nobody_uses_change_nothing(policy: str) -> None:
    without, idle = scenario(), with_accelerators(scenario(), 2, part=0.0)

    assert what_happened(simulate(without, policy, SEED)) == what_happened(simulate(idle, policy, SEED))


def test_devices_that_are_used_do() -> None:
    used = with_accelerators(scenario(), 2, part=1.0)

    assert what_happened(simulate(scenario(), "fair", SEED)) != what_happened(simulate(used, "fair", SEED))
