"""The one placement rule: a job goes where it and those that it delays are done soonest, and moves only to idle nodes.

With the shortest first, two jobs that work for as early a tier cost each other what the shorter one needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.broker.scheduling.feasible import Room
from tiercel.broker.scheduling.forecast.pace import Speeds
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot
from tiercel.broker.scheduling.placement import Preference
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.core.nodes import Drain

# A move must gain so many times its price: what is foretold may be wrong, and who is moved for nothing is over last.
_TIMES_ITS_PRICE = 2.0


@dataclass(frozen=True, slots=True)
class Migration:
    """A job that is sent elsewhere, and why, in words for its tenant."""

    job: JobView
    source: str
    target: str
    reason: str


@dataclass(slots=True)
class Load:
    """What is left to do on a node; local to one call."""

    node: NodeView
    cores: float  # what answers leave of it
    speeds: Speeds
    answers_well: float  # see :class:`.UtilitySettings`
    used: Mapping[str, float]  # cores that the answers of each endpoint use
    ahead: list[tuple[float, float]] = field(default_factory=list)  # stage and CPU seconds to the next tier of each
    cpu: float = 0.0  # CPU seconds until all its jobs are over
    accelerators: float = 0.0  # seconds of all its accelerators together until then
    wanted: float = 0.0  # cores that its jobs can use together
    uses: int = 0  # jobs on its accelerators; one on two of them counts twice
    answers: set[str] = field(default_factory=set)  # endpoints that it answers for, or will once its jobs deliver

    def work_of(self, record: JobRecord) -> tuple[float, float]:
        """What a job still needs here: CPU seconds, and seconds of accelerators."""
        return record.to_end / self.speed(record.job), record.busy

    def speed(self, job: JobView) -> float:
        """Work that a CPU second does here for a job."""
        return self.speeds.of(job.workload, self.node.id)

    def add(self, record: JobRecord) -> None:
        """A job is here, or shall be."""
        stage, speed = math.inf if record.unreachable else record.stage, self.speed(record.job)
        self.ahead.append((stage, record.remaining.expected / speed))
        self.wanted += record.needs.cores
        self.uses += record.job.resources.accelerators
        if not record.unreachable:
            self.cpu += record.to_end / speed
            self.accelerators += record.busy

    def too_much(self, job: JobView) -> float:
        """Cores by which answers would use more than it can give them well if it trained a job, and so its endpoint."""
        own = self.used.get(job.endpoint, 0.0)
        wanted = math.fsum(self.used.get(name, 0.0) for name in self.answers | {job.endpoint})
        # What an endpoint wants on its own is too much for any node alike. Rounded: what is measured differs by chance.
        return round(max(wanted - max(self.answers_well * self.node.cpu_cores, own), 0.0), 1) if own else 0.0

    def seconds(self, record: JobRecord | None = None, sign: float = 1.0) -> float:
        """Until all jobs are over here, with one more, or with one less."""
        cpu, busy = self.work_of(record) if record is not None else (0.0, 0.0)
        devices = max(len(self.node.accelerators), 1)
        return max((self.cpu + sign * cpu) / self.cores, (self.accelerators + sign * busy) / devices)

    def seconds_after(self, target: Load, record: JobRecord, cost: float) -> float:
        """Until all jobs are over, here and on another node, if one of these moves there at that price in seconds."""
        return max(target.seconds(record) + cost, self.seconds(record, -1.0))

    def delay(self, record: JobRecord) -> float:
        """Seconds by which a job that comes here, and those that are here, reach their next tiers later for it."""
        own = record.remaining.expected / self.speed(record.job)
        others = sum(min(own, expected) for stage, expected in self.ahead if stage <= record.stage)
        return others / self.cores + own / record.job.resources.cpu_cores

    def left(self, job: JobView) -> float:
        """What is left of what a job competes for beside those who are here; less than nothing where that lacks."""
        return len(self.node.accelerators) - self.uses if job.resources.accelerators else self.cores - self.wanted


def soonest_done(loads: Mapping[str, Load], records: Mapping[str, JobRecord]) -> Preference:
    """Waiting jobs go to the node that they are meant for, else to where they and those they delay are done soonest.

    Jobs that use accelerators go where they share them with the fewest.

    Args:
        loads: Nodes by id, with nothing to do so far.
        records: What is held of jobs.
    """

    def preference(job: JobView, node: NodeView, jobs: Sequence[JobView]) -> tuple[float | str, ...]:
        load, own = loads[node.id], records[job.id]
        for other in jobs[len(load.ahead) :]:  # a node only fills up while jobs are placed
            load.add(records[other.id])
            load.answers.add(other.endpoint)
        crowd = (load.uses + job.resources.accelerators) / max(len(node.accelerators), 1)
        # Rounded: sums must not depend on the order of the jobs in the snapshot.
        return (
            node.id != job.node_id,
            load.too_much(job),
            math.ceil(crowd) if job.resources.accelerators else 0,
            round(load.delay(own), 6),
            round(load.seconds(own), 6),
            node.id,
        )

    return preference


def choose_migration(
    snapshot: Snapshot,
    groups: Mapping[str, Sequence[JobView]],
    records: Mapping[str, JobRecord],
    loads: Mapping[str, Load],
    kept: Mapping[str, JobView],
) -> Migration | None:
    """The migration to the node with the least left to do which gains most, or None when none is worth its restart.

    A migration gains by what the longer of the two nodes' queues becomes shorter. What the job competes for must be
    unused there, and not suffice where it is, or be slower.

    Args:
        snapshot: Jobs, nodes, and what restarts cost.
        groups: The jobs of each node.
        records: What is held of jobs.
        loads: Nodes by id, with nothing to do so far.
        kept: Jobs that wait for room, by the node that keeps it for them.
    """
    if len(loads) < 2 or not any(job.migratable for job in snapshot.jobs):
        return None
    for name, load in loads.items():
        for job in groups.get(name, ()):
            load.add(records[job.id])
    ordered = sorted(loads.values(), key=lambda load: (load.seconds(), load.node.id))
    target = next((load for load in ordered if load.node.drain is Drain.NO), None)
    if target is None:
        return None
    room = Room.beside(target.node, groups.get(target.node.id, ()), kept.get(target.node.id))
    for source in reversed(ordered):
        gains = [
            (gain, job.id, job)
            for job in groups.get(source.node.id, ())
            if job.migratable and not records[job.id].unreachable and source is not target
            if target.left(job) > 0 and (source.left(job) < 0 or target.speed(job) > source.speed(job))
            for cost in (snapshot.restart_seconds(job, target.node.id),)
            if (gain := source.seconds() - source.seconds_after(target, records[job.id], cost))
            > _TIMES_ITS_PRICE * cost
            if room.can_take(job) and target.too_much(job) <= source.too_much(job)
        ]
        if gains:
            job = max(gains)[2]
            reason = (
                f"moved from {source.node.id} to {target.node.id}, where {target.seconds():.0f} s of work are left "
                f"against {source.seconds():.0f} s; to go on there takes it about "
                f"{snapshot.restart_seconds(job, target.node.id):.1f} s"
            )
            return Migration(job, source.node.id, target.node.id, reason)
    return None
