"""Jobs of programs that ran before, so that it is known what they need, and what the utility policy then decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testing.scheduling import job, node, past, snapshot
from tiercel.broker.scheduling.interface import JobView, NodeView, Plan
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.settings import UtilitySettings

UNGUARDED = UtilitySettings(guard_ratio=0.0)
"""By value alone, whoever is kept waiting."""


HISTORY = {
    "short": past((1, 0.1), (4, 0.9), (9, 0.99)),
    "long": past((10, 0.1), (40, 0.9), (90, 0.99)),
    "longest": past((100, 0.1), (400, 0.9), (900, 0.99)),
}
"""Programs that need 4, 40 and 400 CPU seconds to 0.9."""


def known(name: str, workload: str, **changes: Any) -> JobView:
    """A job of one of these programs, or of another one."""
    return replace(job(name, cpu_cores=1.0), workload=workload, **changes)


def plan_of(
    *jobs: JobView, nodes: list[NodeView] | None = None, settings: UtilitySettings = UNGUARDED, **changes: Any
) -> Plan:
    """What the policy decides at first."""
    seen = replace(snapshot(jobs, nodes or [node(cpu_cores=1.0)]), history=HISTORY, **changes)
    policy = UtilityPolicy(settings)
    return policy.plan(seen, policy.initial_state())[0]
