"""What the scheduler's actor is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiercel.broker.actors.endpoint_states import EndpointNews

if TYPE_CHECKING:
    from tiercel.broker.scheduling.interface import JobView, NodeView, Policy, Trigger
    from tiercel.core.run_records import RunRecord
    from tiercel.core.starts import Start


@dataclass(frozen=True, slots=True)
class JobObserved:
    """A job as it is now; ``view`` is None when it needs nothing of any node.

    ``leaving`` is the node that it leaves while it is moved, ``leaving_accelerators`` are its accelerators there.
    """

    job_id: str
    view: JobView | None
    attempts: int
    leaving: str = ""
    leaving_accelerators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeObserved:
    """A node as it is now; ``view`` is None when it is offline."""

    node_id: str
    view: NodeView | None


@dataclass(frozen=True, slots=True)
class RunsRemembered:
    """What became of jobs that ended or reached their last tier, the latest last."""

    records: tuple[RunRecord, ...]


@dataclass(frozen=True, slots=True)
class StartsMeasured:
    """What the latest runs of a job took to get to work."""

    workload: str
    job_id: str
    starts: tuple[Start, ...]


@dataclass(frozen=True, slots=True)
class MoveRefused:
    """A job cannot be moved now."""

    job_id: str


@dataclass(frozen=True, slots=True)
class SomethingHappened:
    """Something that should not wait for the next interval."""

    trigger: Trigger


@dataclass(frozen=True, slots=True)
class SchedulerTicked:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Another policy decides from now on."""

    policy: Policy[Any]


SchedulerMessage = (
    JobObserved
    | NodeObserved
    | EndpointNews
    | RunsRemembered
    | StartsMeasured
    | MoveRefused
    | SomethingHappened
    | SchedulerTicked
    | PolicySet
)
