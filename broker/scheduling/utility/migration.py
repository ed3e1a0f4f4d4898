"""The one placement rule: a job goes where it and those that it delays are done soonest, and moves only to idle nodes.

With the shortest first, two jobs that work for as early a tier cost each other what the shorter one needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from tiercel.broker.scheduling.feasible import Room
from tiercel.broker.scheduling.forecast.pace import Speeds
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot
from tiercel.broker.scheduling.placement import Preference
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.core.nodes import Drain


class Migration(NamedTuple):
    """A job that is sent elsewhere."""

    job: JobView
    target: str
    reason: str  # in words for its tenant


class Ahead(NamedTuple):
    """What a job of a node works for."""

    stage: float  # tiers that it has reached, infinite where it gets nowhere
    expected: float  # CPU seconds of this node to its next tier
    cores: float  # that it can use


@dataclass(slots=True)
class Load:
    """What is left to do on a node; local to one call."""

    node: NodeView
    cores: float  # what answers leave of it, > 0
    speeds: Speeds
    answers_well: float  # see :class:`.UtilitySettings`
    used: Mapping[str, float]  # cores that the answers of each endpoint use, on whatever node
    answers: set[str] = field(default_factory=set)  # endpoints that it answers for, or will once its jobs deliver
    taken: float = 0.0  # cores that these use
    ahead: dict[str, Ahead] = field(default_factory=dict)  # by job
    cpu: float = 0.0  # CPU seconds until all its jobs are over
    accelerators: float = 0.0  # seconds of all its accelerators together until then
    wanted: float = 0.0  # cores that its jobs can use together
    uses: int = 0  # jobs on its accelerators; one on two of them counts twice

    def speed(self, job: JobView) -> float:
        """Work that a CPU second does here for a job."""
        return self.speeds.of(job.workload, self.node.id)

    def answer(self, endpoint: str) -> None:
        """An endpoint answers here, or will."""
        if endpoint not in self.answers:
            self.answers.add(endpoint)
            self.taken += self.used.get(endpoint, 0.0)

    def others(self, endpoint: str) -> float:
        """Cores that the answers of all other endpoints use."""
        return self.taken - (self.used.get(endpoint, 0.0) if endpoint in self.answers else 0.0)

    def add(self, record: JobRecord) -> None:
        """A job is here, or shall be, if that is new; one that gets nowhere is in nobody's way."""
        if record.job.id in self.ahead:
            return
        speed, lost = self.speed(record.job), bool(record.unreachable)
        stage, expected = math.inf if lost else record.stage, record.remaining.expected / speed
        self.ahead[record.job.id] = Ahead(stage, expected, record.needs.cores)
        self.answer(record.job.endpoint)
        self.wanted += record.needs.cores
        self.uses += record.job.resources.accelerators
        self.cpu += 0.0 if lost else record.to_end / speed
        self.accelerators += 0.0 if lost else record.busy

    def too_much(self, job: JobView) -> float:
        """Cores by which answers would use more than it can give them well if it trained a job, and so its endpoint."""
        own = self.used.get(job.endpoint, 0.0)
        # What an endpoint wants on its own is too much for any node alike.
        well = max(self.answers_well * self.node.cpu_cores, own)
        # Rounded: what is measured differs by chance.
        return round(max(own + self.others(job.endpoint) - well, 0.0), 1) if own else 0.0

    def seconds(self, record: JobRecord | None = None, sign: float = 1.0) -> float:
        """Until all jobs are over here, with one more, or with one less."""
        cpu, busy = (record.to_end / self.speed(record.job), record.busy) if record is not None else (0.0, 0.0)
        devices = max(len(self.node.accelerators), 1)
        return max((self.cpu + sign * cpu) / self.cores, (self.accelerators + sign * busy) / devices)

    def delays(self, record: JobRecord) -> tuple[float, float]:
        """Seconds by which a job that comes here, and those that are here, reach their next tiers later for it.

        Of those that work for as early a tier, then of all that get somewhere; cores that nobody uses delay nobody.
        """
        there = [each for each in self.ahead.values() if each.stage < math.inf]
        return self._delay(record, [each for each in there if each.stage <= record.stage]), self._delay(record, there)

    def _delay(self, record: JobRecord, others: Sequence[Ahead]) -> float:
        own, width = record.remaining.expected / self.speed(record.job), record.job.resources.cpu_cores
        lacking = math.fsum(each.cores for each in others) + width - self.cores
        waited = math.fsum(min(own, each.expected) for each in others) / self.cores
        return own / width + min(max(lacking / width, 0.0), 1.0) * waited

    def left(self, job: JobView) -> float:
        """What is left of what a job competes for beside those who are here; less than nothing where that lacks.

        The answers of its own endpoint go where it goes.
        """
        if job.resources.accelerators:
            return len(self.node.accelerators) - self.uses
        return round(self.node.cpu_cores - self.others(job.endpoint) - self.wanted, 1)


def soonest_done(loads: Sequence[Load], records: Mapping[str, JobRecord]) -> Preference:
    """Waiting jobs go to the node that they are meant for, else to where they and those they delay are done soonest.

    Jobs that use accelerators go where they share them with the fewest.

    Args:
        loads: Nodes, with nothing to do so far.
        records: What is held of jobs.
    """
    load_of = {load.node.id: load for load in loads}

    def preference(job: JobView, node: NodeView, jobs: Sequence[JobView]) -> tuple[float | str, ...]:
        load, own = load_of[node.id], records[job.id]
        for other in jobs[len(load.ahead) :]:  # a node only fills up while jobs are placed
            load.add(records[other.id])
        asked = job.resources.accelerators
        crowd = math.ceil((load.uses + asked) / max(len(node.accelerators), 1)) if asked else 0
        # Rounded: sums must not depend on the order of the jobs in the snapshot.
        soon = (*(round(seconds, 6) for seconds in load.delays(own)), round(load.seconds(own), 6))
        return (node.id != job.node_id, load.too_much(job), crowd, *soon, node.id)

    return preference


def choose_migration(
    snapshot: Snapshot,
    groups: Mapping[str, Sequence[JobView]],
    records: Mapping[str, JobRecord],
    loads: Sequence[Load],
    kept: Mapping[str, JobView],
) -> Migration | None:
    """The migration to the node with the least left to do which gains most, or None when none is worth its restart.

    A migration gains by what the longer of the two nodes' queues becomes shorter. What the job competes for must be
    unused there, and not suffice where it is, or be slower.

    Args:
        snapshot: Jobs, nodes, and what restarts cost.
        groups: The jobs of each node.
        records: What is held of jobs.
        loads: Nodes, with some of what they have to do.
        kept: Jobs that wait for room, by the node that keeps it for them.
    """
    if len(loads) < 2 or not any(job.migratable for job in snapshot.jobs):
        return None
    for load in loads:
        for job in groups.get(load.node.id, ()):
            load.add(records[job.id])
    open_nodes = [load for load in loads if load.node.drain is Drain.NO]
    target = min(open_nodes, key=lambda load: (load.seconds(), load.node.id), default=None)
    if target is None:
        return None
    there = target.node.id
    room = Room.beside(target.node, groups.get(there, ()), kept.get(there))
    gains = [
        (gain, job.id, job, source)
        for source in loads
        for job in groups.get(source.node.id, ())
        if job.migratable and not records[job.id].unreachable and source is not target
        if target.left(job) > 0 and (source.left(job) < 0 or target.speed(job) > source.speed(job))
        for cost in (snapshot.restart_seconds(job, there),)
        for after in (max(target.seconds(records[job.id]) + cost, source.seconds(records[job.id], -1.0)),)
        if (gain := source.seconds() - after) > cost
        if room.can_take(job) and target.too_much(job) <= source.too_much(job)
    ]
    if not gains:
        return None
    _, _, job, source = max(gains, key=itemgetter(0, 1))
    reason = (
        f"moved from {source.node.id} to {there}, where {target.seconds():.0f} s of work are left against "
        f"{source.seconds():.0f} s; to go on there takes it about {snapshot.restart_seconds(job, there):.1f} s"
    )
    return Migration(job, there, reason)
