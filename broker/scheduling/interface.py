"""What every policy reads and returns: snapshot → plan.

A policy is a pure function with an explicit state of its own: no clock, no randomness, no I/O. Whatever runs it (the
live broker or the simulator) keeps the state between calls and hands it in again.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tiercel.core.jobs import Direction, Observation, Resources, TierStatus
from tiercel.core.nodes import Accelerator, Drain
from tiercel.core.shares import Share
from tiercel.core.tenants import NO_CLASS, PriorityClass


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
        movable: Whether it may be placed freely; a job that a node is running is not.
        share: Its present share, or None.
        observations: The reports kept, oldest first; bounded.
        cpu_seconds: CPU seconds used so far.
        accelerator_seconds: Seconds of the accelerator that it keeps busiest, likewise.
        name: What its tenant calls it.
        tenant_weight: Its tenant's weight among tenants, > 0.
        workload: Equal for jobs that train the same thing (program, arguments, metric); key of ``Snapshot.history``.
        started_at: When it first ran, seconds since the Unix epoch, or None.
        max_epochs: Epochs it may train at most.
        endpoint: The endpoint it feeds, or empty. What it delivers is answered on the job's node from then on.
        continues: Whether it goes on after its last tier.
        migratable: Whether a plan may send it to another node although a node runs it: it is checkpointed, stopped,
            and goes on there. Always False for a job that is in transit or is stopping.
        migrations: How often it was sent to another node.
        migrated_at: When it last was, seconds since the Unix epoch, or None.
        variant: The variant of the endpoint that it trains, or empty.
        home: The only node it may be placed on, or empty for any: all variants of an endpoint answer on one node, and
            what a job starts from may be on one only.
        data: Names of the data sets that must be on its node.
        node_labels: Labels that its node must have.
        priority: Among its tenant's jobs the ones with more go first; no policy need look at it (:mod:`.own_priority`).
        similar: Equal for jobs that train something like it, the likest first; keys of ``Snapshot.similar``.
        priority_class: Among all jobs those of a higher class go first; no policy need look at it (:mod:`.classes`).
        stopping: Whether its run was told to stop: what it holds is free soon.
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
    name: str = ""
    tenant_weight: float = 1.0
    workload: str = ""
    started_at: float | None = None
    max_epochs: int = 0
    continues: bool = False
    migratable: bool = False
    migrations: int = 0
    migrated_at: float | None = None
    endpoint: str = ""
    accelerator_seconds: float = 0.0
    variant: str = ""
    home: str = ""
    data: frozenset[str] = frozenset()
    node_labels: frozenset[tuple[str, str]] = frozenset()
    priority: int = 0
    similar: tuple[str, ...] = ()
    priority_class: PriorityClass = NO_CLASS
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class EndpointView:
    """An endpoint as a policy sees it, with what was measured of it since the last snapshot.

    Attributes:
        name: The endpoint.
        tenant: Its owner.
        tenant_weight: Its tenant's weight among tenants, > 0.
        node_id: The node whose inference server answers for it.
        objective_seconds: The delay its tenant wants (QoE objective), or None.
        requests_per_second: Requests that arrived, answered or not.
        delay_seconds: Mean time from arrival to answer, or None when nothing was answered.
        cpu_cores_used: CPU seconds per second that its answers took.
        quality: Metric of the live version where larger is better and 1 is perfect (accuracy), else None.
        share: Its present share, or None while nothing limits it.
        in_objective: Fraction of its requests that was answered within the objective; refused ones and those that timed
            out were not. None without an objective or requests, and where nobody counts.
        p95_seconds: 95th percentile of the time from arrival to answer in the last ten seconds, or None.
    """

    name: str
    tenant: str
    node_id: str
    tenant_weight: float = 1.0
    objective_seconds: float | None = None
    requests_per_second: float = 0.0
    delay_seconds: float | None = None
    cpu_cores_used: float = 0.0
    quality: float | None = None
    share: Share | None = None
    in_objective: float | None = None
    p95_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The metric after some work.

    Attributes:
        cpu_seconds: CPU seconds since the run's start, start-up included.
        value: The metric.
    """

    cpu_seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class PastRun:
    """What an earlier job of the same workload, or of a similar one, did.

    Attributes:
        curve: Its reports, thinned, in the order of work.
        differs: How much its work may differ from that of the job which it is to foretell, because its program was
            another one: standard deviation of the logarithm; 0 if it was the same.
    """

    curve: tuple[CurvePoint, ...]
    differs: float = 0.0


def earlier_runs(
    job: JobView, history: Mapping[str, tuple[PastRun, ...]], similar: Mapping[str, tuple[PastRun, ...]]
) -> tuple[PastRun, ...]:
    """What is known of a job before it has run; see :class:`Snapshot`."""
    if own := history.get(job.workload):
        return own
    return next((runs for key in job.similar if (runs := similar.get(key))), ())


PRIOR_STOP_SECONDS = 2.0
PRIOR_START_SECONDS = 3.0
"""What stopping a run, and starting one, is held for until it was measured: to import torch takes 2 to 4 s."""


@dataclass(frozen=True, slots=True)
class RestartCost:
    """What the latest starts of a program took, as the broker measured it (:mod:`.restarts`).

    Attributes:
        stop_seconds: To stop a run so that its job moves, with its checkpoint; None while nobody knows.
        cold_seconds: To start one where the program has not run yet; None while nobody knows.
        start_seconds: To start one on a node where it has, by node.
        start_cpu_seconds: CPU seconds that a start used, wherever; None while nobody knows.
    """

    stop_seconds: float | None = None
    cold_seconds: float | None = None
    start_seconds: Mapping[str, float] = field(default_factory=lambda: types.MappingProxyType({}))
    start_cpu_seconds: float | None = None


_NOTHING_MEASURED = RestartCost()


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as a policy sees it.

    Attributes:
        id: The node.
        cpu_cores: Cores that jobs may use.
        memory_bytes: Memory that jobs may use.
        runtimes: What it can run jobs with.
        images: Container images at hand.
        accelerators: Accelerators that jobs may use.
        data: Names of the data sets that are there.
        labels: What its operator says of it.
        drain: Whether it is being emptied: then nothing new may start there.
    """

    id: str
    cpu_cores: float
    memory_bytes: int
    runtimes: tuple[str, ...] = ("process",)
    images: frozenset[str] = field(default_factory=frozenset)
    accelerators: tuple[Accelerator, ...] = ()
    data: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()
    drain: Drain = Drain.NO


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a policy may read.

    Attributes:
        now: Seconds since the Unix epoch.
        trigger: Why the scheduler runs.
        jobs: Every job that has not finished.
        nodes: Every node that is online.
        endpoints: Every endpoint that has a live version on one of these nodes.
        history: Earlier runs by ``JobView.workload``, the latest last; bounded.
        similar: The same runs by each of ``JobView.similar``; bounded. See :meth:`earlier_runs`.
        restarts: What restarts were measured to cost, by ``JobView.workload``; bounded. See :meth:`restart_seconds`.
        given: The part of its cores that a node was measured to give its runs, in (0, 1], by id; the rest goes to other
            programs of the machine. One that is left out gives all.
    """

    now: float
    trigger: Trigger
    jobs: tuple[JobView, ...]
    nodes: tuple[NodeView, ...]
    endpoints: tuple[EndpointView, ...] = ()
    history: Mapping[str, tuple[PastRun, ...]] = field(default_factory=lambda: types.MappingProxyType({}))
    restarts: Mapping[str, RestartCost] = field(default_factory=lambda: types.MappingProxyType({}))
    similar: Mapping[str, tuple[PastRun, ...]] = field(default_factory=lambda: types.MappingProxyType({}))
    given: Mapping[str, float] = field(default_factory=lambda: types.MappingProxyType({}))

    def earlier_runs(self, job: JobView) -> tuple[PastRun, ...]:
        """What is known of a job before it has run: runs of its program, or of the likest one that ever ran.

        Returns:
            The latest last; empty where nothing like it has run.
        """
        return earlier_runs(job, self.history, self.similar)

    def restart_seconds(self, job: JobView, node_id: str, prior: float | None = None) -> float:
        """For how long a job that runs would not train if it were stopped and went on on a node.

        Args:
            job: The job.
            node_id: Where it would go on; it may be the node that runs it.
            prior: What is held of that until both its stop and its start were measured; by default each is held for
                what it takes most programs until it was measured itself.
        """
        cost = self.restarts.get(job.workload, _NOTHING_MEASURED)
        stop, start = cost.stop_seconds, cost.start_seconds.get(node_id, cost.cold_seconds)
        if prior is not None and (stop is None or start is None):
            return prior
        return (PRIOR_STOP_SECONDS if stop is None else stop) + (PRIOR_START_SECONDS if start is None else start)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a plan gives to one job.

    Attributes:
        job_id: The job.
        node_id: Where it runs. Another node than the one that runs it is a migration, for a job that is migratable.
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
        endpoint_shares: What endpoints may use of their node, by name; one without an entry is not limited. The weights
            of a node's jobs and of its endpoints with a share add up to at most 1.
        suspended: Why a job that runs is suspended until there is room for it again, by job id: it saves a checkpoint,
            frees all that it holds and waits.
        next_at: When a policy with a rhythm of its own wants to be asked again at the latest, seconds since the Unix
            epoch; it may be asked sooner. None leaves it to the loop's interval and back-off.
    """

    assignments: tuple[Assignment, ...] = ()
    waiting: dict[str, str] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    endpoint_shares: dict[str, Share] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    next_at: float | None = None


StateT = TypeVar("StateT")


class Policy(Protocol, Generic[StateT]):
    """A scheduler: a pure function of a snapshot and its own earlier state.

    ``plan`` must give the same plan for the same snapshot and state, whatever the order of the snapshot's jobs.
    """

    name: str

    def initial_state(self) -> StateT:
        """The state before the first call."""

    def plan(self, snapshot: Snapshot, state: StateT) -> tuple[Plan, StateT]:
        """Decide, and return the state for the next call.

        Weights of a node's jobs must add up to at most 1, each in (0, 1]; memory must never be promised twice.
        """
