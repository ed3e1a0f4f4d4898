"""What tenants are told, and the client returns: frozen types, each of which can be turned into JSON.

What is not known yet is None. Times are aware datetimes in UTC; durations are seconds since the job was submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from tiercel.core.data_sets import NodeData
from tiercel.core.fields import TOLD_OTHERWISE
from tiercel.core.jobs import JobSpec, JobState, TierStatus
from tiercel.core.jsonable import Json, Jsonable, json_of
from tiercel.core.nodes import Drain
from tiercel.core.shares import Share
from tiercel.core.starts import Start


@dataclass(frozen=True, slots=True)
class JobInfo(Jsonable):
    """A job at the moment it was asked for.

    Attributes:
        id: Made by the broker.
        tenant: Its owner.
        spec: As accepted; a script's content is left out.
        state: Where it is in its life.
        reason: Plain words about the state.
        submitted_at: When it was accepted.
        started_seconds: When it first ran.
        finished_seconds: When it reached a final state.
        tiers: In order of difficulty.
        epoch: Latest epoch reported.
        latest_value: Latest value of the metric.
        best_value: Best value of the metric.
        node_id: Where it is placed, or empty.
        share: What it may use there.
        cpu_seconds: CPU seconds that it has used.
        attempts: How many times it was started.
        log_tail: Last lines of its output, if it failed.
        accelerator_seconds: Seconds that it kept an accelerator busy; of several, the busiest counts.
        retries: How many of the spec's retries were used.
        starts: What its latest runs took to get to work, the oldest first, as far as that was measured: what moving it
            costs.
        checkpoint_copied_seconds: When the broker got the copy of its checkpoint that it keeps, where its spec asks.
        checkpoint_stored_seconds: When a copy was in the broker's artefact store as well, where it has one.
        checkpoint_store_problem: Why the newest copy is not there yet, or why it was of no use; else empty.
    """

    id: str
    tenant: str
    spec: JobSpec
    state: JobState
    reason: str
    submitted_at: datetime
    started_seconds: float | None
    finished_seconds: float | None
    tiers: tuple[TierStatus, ...]
    epoch: int
    latest_value: float | None
    best_value: float | None
    node_id: str
    share: Share | None
    cpu_seconds: float
    attempts: int
    log_tail: str
    accelerator_seconds: float = 0.0
    retries: int = 0
    starts: tuple[Start, ...] = ()
    checkpoint_copied_seconds: float | None = None
    checkpoint_stored_seconds: float | None = None
    checkpoint_store_problem: str = ""


@dataclass(frozen=True, slots=True)
class EventOfJob(Jsonable):
    """What every event of a job has.

    Attributes:
        sequence: Grows with each event of all jobs; to go on behind it later.
        job_id: Which job.
        tenant: Whose it is.
        at: When it happened.
    """

    kind: ClassVar[str]
    sequence: int
    job_id: str
    tenant: str
    at: datetime

    def to_json(self) -> Json:
        """The same as JSON types, with ``event`` naming the kind."""
        return {"event": self.kind, **json_of(self)}


@dataclass(frozen=True, slots=True)
class StateEvent(EventOfJob):
    """A job entered a state.

    Attributes:
        state: Which.
        reason: Why, in a sentence; often empty.
    """

    kind: ClassVar[str] = "state"
    state: JobState
    reason: str


@dataclass(frozen=True, slots=True)
class ProgressEvent(EventOfJob):
    """The script reported metrics.

    Attributes:
        epoch: After which epoch.
        value: The metric that the tiers are about.
        metrics: All that the script reported.
        cpu_seconds: CPU that the run has used.
        accelerator_seconds: How long it kept its busiest accelerator busy.
    """

    kind: ClassVar[str] = "progress"
    epoch: int
    value: float
    metrics: Mapping[str, float]
    cpu_seconds: float
    accelerator_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TierEvent(EventOfJob):
    """A tier was reached, delivered, failed, or found out of reach.

    Attributes:
        tier: How the tier is now.
    """

    kind: ClassVar[str] = "tier"
    tier: TierStatus


@dataclass(frozen=True, slots=True)
class ShareEvent(EventOfJob):
    """A job got another share, or its first one.

    Attributes:
        node_id: Where.
        share: What it may use now, with the reason.
    """

    kind: ClassVar[str] = "share"
    node_id: str
    share: Share


@dataclass(frozen=True, slots=True)
class PriorityEvent(EventOfJob):
    """Its tenant gave a job another priority among its own.

    Attributes:
        priority: -100 to 100.
    """

    kind: ClassVar[str] = "priority"
    priority: int


JobEvent = StateEvent | ProgressEvent | TierEvent | ShareEvent | PriorityEvent
"""Something that happened to a job; ``sequence`` is the cursor to go on from."""


@dataclass(frozen=True, slots=True)
class DecisionInfo(Jsonable):
    """A change of a job's or endpoint's share as the scheduler decided it, with the reason in ``share.reason``.

    Attributes:
        at: When.
        policy: Name of the policy.
        trigger: What made the scheduler run: ``arrival``, ``exit``, ``tier``, ``node`` or ``interval``.
        node_id: Where the job is placed, or the endpoint answers.
        share: What it got; weight 1 without a cap for an endpoint that is not limited.
    """

    at: datetime
    policy: str
    trigger: str
    node_id: str
    share: Share


@dataclass(frozen=True, slots=True)
class Explanation(Jsonable):
    """Why a job has its share, and what was decided before.

    Attributes:
        job: The job, with its share and the reason of it.
        decisions: The newest first.
    """

    job: JobInfo
    decisions: tuple[DecisionInfo, ...]


@dataclass(frozen=True, slots=True)
class AcceleratorInfo(Jsonable):
    """A device of a node that trains or serves faster than the CPU.

    Attributes:
        id: As its driver calls it for good: ``GPU-...`` or, for a slice of one, ``MIG-...``.
        name: Its make.
        memory_bytes: Memory that jobs may use.
        memory_reserved_bytes: What running jobs have reserved of it.
        memory_used_bytes: What is held of it now, by whoever it may be; 0 while nobody knows.
        utilisation: Fraction of time in which it computed lately, or None while nobody knows.
        jobs: How many jobs hold a part of it, of all tenants.
        problem: Why nothing new is put on it; empty while it is well.
    """

    id: str
    name: str
    memory_bytes: int
    memory_reserved_bytes: int
    memory_used_bytes: int
    utilisation: float | None
    jobs: int
    problem: str


@dataclass(frozen=True, slots=True)
class NodeInfo(Jsonable):
    """A machine with an agent.

    Attributes:
        id: Its name.
        online: Whether it answers.
        cpu_cores: Cores that jobs may use.
        memory_bytes: Memory that jobs may use.
        memory_reserved_bytes: What running jobs have reserved of it.
        jobs: How many jobs are placed on it, of all tenants.
        runtimes: What it can run jobs with, the preferred first.
        limits: How it enforces CPU shares: ``cgroup-v2``, ``cgroup-v1`` or ``cooperative``.
        serving_http: Where its inference server answers, ``host:port``, or empty.
        serving_grpc: The same over gRPC.
        lease_epoch: Counts its connections.
        accelerators: Its devices, in the order of its bus.
        data: Data sets that its operator offers, for jobs to ask for by name.
        labels: What its operator says of it, for jobs to ask for.
        drain: Whether it is being emptied.
    """

    id: str
    online: bool = field(metadata=TOLD_OTHERWISE)
    cpu_cores: float
    memory_bytes: int
    memory_reserved_bytes: int
    jobs: int
    runtimes: tuple[str, ...]
    limits: str
    serving_http: str
    serving_grpc: str
    lease_epoch: int
    accelerators: tuple[AcceleratorInfo, ...] = ()
    data: tuple[NodeData, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    drain: Drain = Drain.NO
