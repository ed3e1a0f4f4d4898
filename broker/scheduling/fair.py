"""Equal shares: what a container engine does when nobody tells it anything. The baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.broker.scheduling.explain import equal_share
from tiercel.broker.scheduling.interface import Assignment, Plan, Snapshot
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.core.shares import Share


@dataclass(frozen=True, slots=True)
class FairSettings:
    """Nothing to set."""


@dataclass(frozen=True, slots=True)
class FairState:
    """Nothing to remember."""


class FairPolicy:
    """Gives the jobs of a node equal weights and no caps (Docker's default)."""

    name: str = "fair"
    settings_type = FairSettings

    def __init__(self, settings: FairSettings | None = None) -> None:
        self.settings = settings or FairSettings()

    def initial_state(self) -> FairState:
        """The state before the first call."""
        return FairState()

    def plan(self, snapshot: Snapshot, state: FairState) -> tuple[Plan, FairState]:
        """Share each node equally among its jobs."""
        placement = place(snapshot)
        assignments: list[Assignment] = []
        for node_id, jobs in jobs_by_node(snapshot, placement).items():
            share = Share(cpu_weight=1 / len(jobs), reason=equal_share(len(jobs) - 1))
            assignments += [Assignment(job.id, node_id, share) for job in jobs]
        return Plan(assignments=tuple(assignments), waiting=placement.waiting), state
