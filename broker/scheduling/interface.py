"""What every policy reads and returns: snapshot → plan.

A policy is a pure function with an explicit state of its own: no clock, no randomness, no I/O. Whatever runs it (the
live broker or the simulator) keeps the state between calls and hands it in again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tiercel.broker.domain.jobs import Direction, Observation, Resources, TierStatus
from tiercel.broker.domain.shares import Share


class Trigger(enum.Enum):
    """Why the scheduler runs; the strongest one when several came together."""

    ARRIVAL = "arrival"
    EXIT = "exit"
    TIER = "tier"
    NODE = "node"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as a policy sees it.

    Attributes:
        id: The job.
        tenant: Its owner.
        submitted_at: Seconds since the Unix epoch.
        direction: Whether a larger or a smaller metric is better.
        tiers: Status of each tier, easiest first; a tier counts as reached from its first report on, for good.
        resources: What it may use at most.
        runtime: Runtime it asks for, or empty for any.
        image: Container image it asks for, or empty.
        node_id: Where it is placed, or empty while it waits.
        movable: Whether it may be placed (again); a job that a node is running is not.
        share: Its present share, or None.
        observations: The reports kept, oldest first; bounded.
        cpu_seconds: CPU seconds used so far.
    """

    id: str
    tenant: str
    submitted_at: float
    direction: Direction
    tiers: tuple[TierStatus, ...]
    resources: Resources
    runtime: str = ""
    image: str = ""
    node_id: str = ""
    movable: bool = True
    share: Share | None = None
    observations: tuple[Observation, ...] = ()
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as a policy sees it.

    Attributes:
        id: The node.
        cpu_cores: Cores that jobs may use.
        memory_bytes: Memory that jobs may use.
        runtimes: What it can run jobs with.
        images: Container images at hand.
    """

    id: str
    cpu_cores: float
    memory_bytes: int
    runtimes: tuple[str, ...] = ("process",)
    images: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a policy may read.

    Attributes:
        now: Seconds since the Unix epoch.
        trigger: Why the scheduler runs.
        jobs: Every job that has not finished.
        nodes: Every node that is online.
    """

    now: float
    trigger: Trigger
    jobs: tuple[JobView, ...]
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a plan gives to one job.

    Attributes:
        job_id: The job.
        node_id: Where it runs.
        share: What it may use there, with the reason.
    """

    job_id: str
    node_id: str
    share: Share


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy decided.

    Attributes:
        assignments: One for each job that runs or shall run; a job without one keeps waiting.
        waiting: Why a job keeps waiting, by job id. A job whose node is offline waits for that node, not for a
            decision, and is not listed.
        unreachable: Why a job's next tier is held for out of reach, by job id; the tenant is told.
    """

    assignments: tuple[Assignment, ...] = ()
    waiting: dict[str, str] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)


StateT = TypeVar("StateT")


class Policy(Protocol, Generic[StateT]):
    """A scheduler: a pure function of a snapshot and its own earlier state.

    ``plan`` must give the same plan for the same snapshot and state, whatever the order of the snapshot's jobs.
    """

    name: str

    def initial_state(self) -> StateT:
        """The state before the first call."""
        ...

    def plan(self, snapshot: Snapshot, state: StateT) -> tuple[Plan, StateT]:
        """Decide, and return the state for the next call.

        Weights of a node's jobs must add up to at most 1, each in (0, 1]; memory must never be promised twice.
        """
        ...
