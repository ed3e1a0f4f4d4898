"""A few at a time, the others at a small floor: how every policy that is but an order puts the steps together.

A live trial showed that most of what a tier-aware scheduler gains over equal shares comes from running no more jobs at
a time than there are cores, in whatever order. So this part is the same for all policies that have an order,
and they differ by the order alone. Weights, never caps: what those in front leave unused flows to the others.

Pure: an order in, assignments with reasons out. Linear in the number of jobs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tiercel.broker.scheduling.allocate import FLOOR, by_turns
from tiercel.broker.scheduling.explain import at_stage, in_queue
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.node_memory import NodeMemories, NodeMemory, recall
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.broker.scheduling.rank import Candidate, Position, ranking
from tiercel.core.shares import Share


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What all policies that put jobs in an order have in common."""

    at_a_time: int | None = None  # jobs in front on each node, >= 1; None for as many as it takes to use all its cores
    floor: float = FLOOR  # what all the other jobs of a node get together, a fraction of it in (0, 1)
    # Whether jobs that have reached fewer tiers always go first, those that have reached all last.
    tier_first: bool = True

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        if self.at_a_time is not None and self.at_a_time < 1:
            msg = "at_a_time must be at least 1"
            raise ValueError(msg)
        if not 0 < self.floor < 1:
            msg = "floor must be between 0 and 1"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class QueueState:
    """What is remembered between decisions: the ranking of each node and what came of it, by node id."""

    nodes: NodeMemories = field(default_factory=dict)


SettingsT = TypeVar("SettingsT", bound=QueueSettings)


class QueuePolicy(ABC, Generic[SettingsT]):
    """A policy that is but an order; see :class:`.Policy`."""

    name: str
    settings_type: type[SettingsT]

    def __init__(self, settings: SettingsT | None = None) -> None:
        self.settings = self.settings_type() if settings is None else settings

    def initial_state(self) -> QueueState:
        """The state before the first call."""
        return QueueState()

    def plan(self, snapshot: Snapshot, state: QueueState) -> tuple[Plan, QueueState]:
        """Rank the jobs of each node, and share it by their positions."""
        return plan_in_order(snapshot, state, lambda job: self.position(job, snapshot), self.settings)

    @abstractmethod
    def position(self, job: JobView, snapshot: Snapshot) -> Position:
        """The position of a job among those at the same stage."""


def plan_in_order(
    snapshot: Snapshot, state: QueueState, position_of: Callable[[JobView], Position], settings: QueueSettings
) -> tuple[Plan, QueueState]:
    """Place every job, rank those of each node, and share it by their positions.

    Args:
        snapshot: What is.
        state: What was decided before.
        position_of: The position of a job among those at the same stage (see :func:`.stage_of`).
        settings: How many at a time, and what the others keep.
    """
    placement = place(snapshot)
    nodes = {node.id: node for node in snapshot.nodes}
    kept: dict[str, NodeMemory] = {}
    assignments: list[Assignment] = []
    for node_id, jobs in jobs_by_node(snapshot, placement).items():
        node, queue = nodes[node_id], ranking(jobs, snapshot.now, position_of, tier_first=settings.tier_first)
        memory = recall(state.nodes, node, queue)
        if memory is None:
            memory = NodeMemory(node, queue, _share(node, queue, settings))
        kept[node_id] = memory
        assignments += memory.assignments
    return Plan(assignments=tuple(assignments), waiting=placement.waiting), QueueState(kept)


def _share(node: NodeView, queue: Sequence[Candidate], settings: QueueSettings) -> tuple[Assignment, ...]:
    cores = [candidate.cores for candidate in queue]
    turns = by_turns(cores, node.cpu_cores, at_a_time=settings.at_a_time, floor=settings.floor)
    assignments = []
    for position, (candidate, weight) in enumerate(zip(queue, turns.weights, strict=True)):
        reason = in_queue(at_stage(candidate.stage, candidate.why), weight, position, turns.front)
        assignments.append(Assignment(candidate.job_id, node.id, Share(weight, reason=reason)))
    return tuple(assignments)
