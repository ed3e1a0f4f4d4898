"""Which node a job is best off on under the utility policy: where it starts, and whether it is worth moving later."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.broker.scheduling.feasible import Room
from tiercel.broker.scheduling.forecast.pace import Speeds
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot
from tiercel.broker.scheduling.placement import Preference
from tiercel.broker.scheduling.utility.accelerators import dominance
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.broker.scheduling.utility.serving import Answering
from tiercel.core.nodes import Drain

# A move must gain so many times its price: a job's endpoint goes with it, and what is foretold may be wrong.
_GAIN = 2.0


@dataclass(frozen=True, slots=True)
class Migration:
    """A job that is sent elsewhere, and why, in words for its tenant."""

    job: JobView
    source: str
    target: str
    reason: str


@dataclass(slots=True)
class _Load:
    """A node with what is left to do there; local to one call of :func:`choose_migration`."""

    room: Room
    cores: float
    wanted: float
    accelerator_uses: int
    speeds: Speeds
    work: float = 0.0

    @property
    def node(self) -> NodeView:
        return self.room.node

    @property
    def seconds(self) -> float:
        return self.work / self.cores

    def speed(self, job: JobView) -> float:
        """Work that a CPU second does here for a job."""
        return self.speeds.of(job.workload, self.node.id)

    def work_of(self, job: JobView, record: JobRecord) -> float:
        """What a job still needs of what it is short of here, in CPU seconds of the node; see :func:`.dominance`."""
        if job.resources.accelerators:
            return record.to_end * dominance(job, record, self.node)
        return record.to_end / self.speed(job)

    def cores_for(self, job: JobView, record: JobRecord) -> float:
        """Cores that a job could use here."""
        wanted = job.resources.cpu_cores if record.needs is None else record.needs.cores
        return max(min(wanted, self.cores), 1e-3)

    def lacks(self, job: JobView) -> bool:
        """Whether what a job competes for does not suffice for those who are here."""
        return self._left(job) < 0

    def idles(self, job: JobView) -> bool:
        """Whether what a job competes for would be unused here without it."""
        return self._left(job) > 0

    def _left(self, job: JobView) -> float:
        if job.resources.accelerators:
            return len(self.node.accelerators) - self.accelerator_uses
        return self.cores - self.wanted


@dataclass(slots=True)
class _Crowd:
    """What the jobs of a node still need; local to one call of :func:`.place`."""

    node_id: str
    speeds: Speeds
    ahead: list[tuple[float, float]] = field(default_factory=list)  # stage and CPU seconds to the next tier of each
    work: float = 0.0  # CPU seconds until all are over
    accelerator_work: float = 0.0  # seconds of all its accelerators together until then
    accelerator_uses: int = 0  # jobs on its accelerators; one on two of them counts twice

    def add(self, job: JobView, held: JobRecord) -> None:
        speed = self.speeds.of(job.workload, self.node_id)
        self.ahead.append((math.inf if held.unreachable else held.stage, held.remaining.expected / speed))
        self.work += held.to_end / speed
        if (needs := held.needs) is not None:
            self.accelerator_work += held.to_end * needs.accelerator_per_cpu * job.resources.accelerators
            self.accelerator_uses += job.resources.accelerators

    def on_accelerators(self, job: JobView, node: NodeView) -> tuple[int, float]:
        """Jobs on its most crowded accelerator at best once the job has come, and what is left to do on each."""
        if not (job.resources.accelerators and node.accelerators):
            return 0, 0.0
        accelerators = len(node.accelerators)
        return math.ceil(
            (self.accelerator_uses + job.resources.accelerators) / accelerators
        ), self.accelerator_work / accelerators


def least_work_left(
    records: Mapping[str, JobRecord], left: Mapping[str, float], answering: Answering, speeds: Speeds
) -> Preference:
    """Waiting jobs go to the node that they are meant for, else to where they and those they delay are done soonest.

    Jobs that use accelerators go where they share them with the fewest, and then to where these have the least left to
    do. With the shortest first, two jobs that work for as early a tier cost each other what the shorter one needs.

    Args:
        records: What is held of jobs.
        left: Cores that endpoints leave to jobs, by node; the whole node where there are none.
        answering: Which endpoints nodes answer for: the node must bear what the job's endpoint brings along.
        speeds: How fast nodes are.
    """
    crowds: dict[str, _Crowd] = {}

    def preference(job: JobView, node: NodeView, jobs: Sequence[JobView]) -> tuple[float | str, ...]:
        own = records[job.id]
        crowd = crowds.get(node.id)
        if crowd is None:
            crowd = crowds[node.id] = _Crowd(node.id, speeds)
        for other in jobs[len(crowd.ahead) :]:  # a node only fills up while jobs are placed
            crowd.add(other, records[other.id])
            answering.expect(other, node.id)
        speed = speeds.of(job.workload, node.id)
        stage, expected = own.stage, own.remaining.expected / speed
        delay = 0.0
        for held_stage, held_expected in crowd.ahead:
            if held_stage <= stage:
                delay += min(expected, held_expected)
        cores = left.get(node.id, node.cpu_cores)
        layers, accelerators = crowd.on_accelerators(job, node)
        # Rounded: sums must not depend on the order of the jobs in the snapshot.
        return (
            node.id != job.node_id,
            answering.too_much(job, node),
            layers,
            round(accelerators, 6),
            round(delay / cores + expected / job.resources.cpu_cores, 6),
            round((crowd.work + own.to_end / speed) / cores, 6),
            node.id,
        )

    return preference


def choose_migration(
    snapshot: Snapshot,
    groups: Mapping[str, Sequence[JobView]],
    records: Mapping[str, JobRecord],
    left: Mapping[str, float],
    answering: Answering,
    speeds: Speeds,
    kept: Mapping[str, JobView],
) -> Migration | None:
    """The migration to a node that would else idle which gains most, or None when none gains enough.

    A migration gains by what the longest of the two nodes' queues becomes shorter. It must gain its cost twice, and
    the job must come from a node that has not enough for all of its jobs, and leave room for one that waits.
    """
    if len(snapshot.nodes) < 2 or not any(job.migratable for job in snapshot.jobs):
        return None
    loads = [
        _load(node, left.get(node.id, node.cpu_cores), groups.get(node.id, ()), records, speeds, kept.get(node.id))
        for node in snapshot.nodes
    ]
    loads.sort(key=lambda load: (load.seconds, load.node.id))
    target = next((load for load in loads if load.node.drain is Drain.NO), None)
    if target is None:
        return None
    for source in reversed(loads):
        gains = [
            (gain, job.id, job)
            for job in source.room.jobs
            if target.idles(job) and (source.lacks(job) or target.speed(job) > source.speed(job))
            if (gain := _gain(job, source, target, records, snapshot))
            if answering.too_much(job, target.node) <= answering.too_much(job, source.node)
        ]
        if gains:
            job = max(gains)[2]
            cost = snapshot.restart_seconds(job, target.node.id)
            reason = (
                f"moved from {source.node.id} to {target.node.id}, where {target.seconds:.0f} s of work are left "
                f"against {source.seconds:.0f} s; to go on there takes it about {cost:.1f} s"
            )
            return Migration(job, source.node.id, target.node.id, reason)
    return None


def _load(
    node: NodeView,
    cores: float,
    jobs: Sequence[JobView],
    records: Mapping[str, JobRecord],
    speeds: Speeds,
    kept_for: JobView | None,
) -> _Load:
    wanted = sum(job.resources.cpu_cores for job in jobs), sum(job.resources.accelerators for job in jobs)
    load = _Load(Room.beside(node, jobs, kept_for), cores, *wanted, speeds)
    load.work = sum(load.work_of(job, records[job.id]) for job in jobs if not records[job.id].unreachable)
    return load


def _gain(
    job: JobView, source: _Load, target: _Load, records: Mapping[str, JobRecord], snapshot: Snapshot
) -> float | None:
    """Seconds that a migration gains, or None when it is not worth it."""
    record = records[job.id]
    if not job.migratable or record.unreachable:
        return None
    cost = snapshot.restart_seconds(job, target.node.id)
    work, left = target.work_of(job, record), source.work_of(job, record)
    there = max((target.work + work + cost) / target.cores, work / target.cores_for(job, record) + cost)
    rest = (source.work - left) / source.cores
    gain = max(source.seconds, left / source.cores_for(job, record)) - max(there, rest)
    return gain if gain > _GAIN * cost / target.cores and target.room.can_take(job) else None
