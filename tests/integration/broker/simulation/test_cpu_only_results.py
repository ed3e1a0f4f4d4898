"""Clusters without accelerators behave as they did before there were any: one recorded digest for each policy."""

from __future__ import annotations

import hashlib

import pytest

from tiercel.broker.scheduling.registry import policies
from tiercel.broker.simulation import Result, Scenario, simulate
from tiercel.broker.simulation.presets import heavy_tailed_jobs, with_endpoints

SEED = 3

# Made by this file's ``digest`` from the code of 21 November 2026, before nodes had accelerators.
RECORDED = {
    "dqoes": "1bef01d6883935b1",
    "fair": "4cf274aef37698e8",
    "fifo": "88123d37d02ed76e",
    "flowcon": "ce620ef7322e9779",
    "las": "09f309e5d78fd0a6",
    "random-order": "1aa0f859a7d174fc",
    "slaq": "b741c26197a6a98b",
    "specon": "4cf274aef37698e8",
    "srpt-oracle": "33a085aabb5d2cb8",
    "tradl": "a366465601f106cf",
    "utility": "02ad0aa2f55939e6",
}


def scenario() -> Scenario:
    """Sixty jobs of very different length on three nodes that also answer requests."""
    return with_endpoints(heavy_tailed_jobs(60, 3, load=1.5), load=0.2, duration_seconds=90.0)


def digest(result: Result) -> str:
    """All that happened, to the microsecond: libraries of mathematics differ in the last bits."""
    lines = [
        f"{job.id} {job.workload} {job.nodes} {job.state.value} {job.migrations} {job.arrived_at:.6f} "
        f"{job.started_at:.6f} {job.finished_at:.6f} {job.cpu_seconds:.6f} "
        + " ".join(f"{tier.reached_seconds}"[:12] for tier in job.tiers)
        for job in result.jobs
    ]
    lines += [
        f"{each.name} {each.answered:.4f} {each.in_objective:.4f} {each.cpu_seconds:.4f}" for each in result.endpoints
    ]
    lines += [f"{made.at:.6f} {made.jobs} {made.changed}" for made in result.decisions]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.mark.parametrize("policy", sorted(policies))
def test_the_result_is_the_one_that_was_recorded(policy: str) -> None:
    assert digest(simulate(scenario(), policy, SEED)) == RECORDED[policy]
