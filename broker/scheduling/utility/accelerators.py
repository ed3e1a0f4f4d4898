"""CPU and accelerators together under the utility policy: who runs in front on a node whose jobs use both.

A job competes for what it is short of. So each accelerator has a queue of its own, by value per second of that
accelerator, and whoever is first in it, with the jobs that use none, stands in the queue for CPU, by value per CPU
second. Those in front get what they can use of each: a job that waits for its accelerator leaves the CPU that it
cannot use to others, and one that waits for CPU its accelerator's time. Whoever finds no room passes its turn on, so
that no accelerator idles while anybody could use it. The rest share a small floor of both.

Ordering everybody by value per second of the dominant share of the whole node would be simpler and is worse: a job
that needs a whole accelerator and hardly any CPU would stand behind a CPU job for each core, and leave its accelerator
idle for a hundredth of a core.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.broker.scheduling.accelerators import Grant, held_by
from tiercel.broker.scheduling.allocate import Claim, divide, divide_accelerator, holders
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot
from tiercel.broker.scheduling.utility.candidate import Candidate
from tiercel.broker.scheduling.utility.record import JobRecord

_NO_ROOM = 1e-9
# With less than this part of its full speed a job is not in front.
_LEAST_PART = 0.1


def dominance(job: JobView, record: JobRecord, node: NodeView) -> float:
    """How much more of a node's accelerators than of its CPU goes into a job's work, at least 1.

    CPU seconds times this are seconds of the job's dominant share, counted in cores of the node.
    """
    needs = record.needs
    if needs is None or not node.accelerators:
        return 1.0
    share_of_accelerators = needs.accelerator_per_cpu * job.resources.accelerators / len(node.accelerators)
    return max(share_of_accelerators * node.cpu_cores, 1.0)


def fair_accelerator_cores(snapshot: Snapshot, records: Mapping[str, JobRecord]) -> dict[str, float]:
    """Cores that each job that uses accelerators could use if all jobs on an accelerator shared it equally; by job.

    One that waits is held to get what there is for each on average.
    """
    users = {job.id: job for job in snapshot.jobs if job.resources.accelerators}
    if not users:
        return {}
    accelerators = sum(len(node.accelerators) for node in snapshot.nodes)
    uses = sum(job.resources.accelerators for job in users.values())
    average = min(accelerators / uses, 1.0) if accelerators else 1.0
    on_accelerator: dict[tuple[str, str], dict[str, Claim]] = {}
    for name, job in users.items():
        needs = records[name].needs
        for share in held_by(job):
            claim = Claim(1.0, 0.0, needs.fraction if needs is not None else 1.0)
            on_accelerator.setdefault((job.node_id, share.id), {})[name] = claim
    fractions = {name: average for name, job in users.items() if not held_by(job)}
    for claims in on_accelerator.values():
        for name, fraction in divide(dict(sorted(claims.items())), 1.0).items():
            fractions[name] = min(fractions.get(name, 1.0), fraction)
    return {
        name: needs.cores_with(fraction)
        for name, fraction in fractions.items()
        if (needs := records[name].needs) is not None
    }


@dataclass(frozen=True, slots=True)
class Division:
    """What the jobs of a node get."""

    order: tuple[Candidate, ...]  # its jobs, those in front first
    ahead: int  # so many are in front
    weights: Mapping[str, float]  # CPU weight by job
    fractions: Mapping[str, Mapping[str, float]]  # by accelerator, the fraction of each job on it


def divide_node(
    candidates: Sequence[Candidate],
    held: Mapping[str, Grant],
    *,
    cores: float,
    capacity: float,
    floor: float,
) -> Division:
    """Divide a node's CPU and accelerators among its jobs.

    Args:
        candidates: Its jobs, those first that go first.
        held: The accelerators of each that holds any.
        cores: Cores that jobs may use in the mean.
        capacity: Part of the node's weight that they share, in (0, 1].
        floor: What all that are not in front get of each resource together, a fraction of it.
    """
    front = _Front(cores, held)
    front.choose(candidates)
    ahead = [entry for entry in candidates if entry.job.id in front.parts]
    rest = [entry for entry in candidates if entry.job.id not in front.parts]
    if not ahead:  # there is always somebody to run
        ahead, rest = rest[:1], rest[1:]
    grants = {entry.job.id: front.cores_of(entry) for entry in ahead}
    weights = _shared(grants, [entry.job.id for entry in rest], capacity, floor)
    hopeless = {entry.job.id for entry in candidates if entry.is_hopeless}
    used = {entry.job.id: front.fraction_of(entry) for entry in ahead}
    fractions = {
        accelerator: _accelerator_shares(names, used, hopeless, floor) for accelerator, names in holders(held).items()
    }
    return Division((*ahead, *rest), len(ahead), weights, fractions)


@dataclass(slots=True)
class _Front:
    """Who runs in front; local to one decision."""

    cores: float  # what is left of the CPU
    held: Mapping[str, Grant]
    # Of those in front, the part of its full speed that there is room for.
    parts: dict[str, float] = field(default_factory=dict)
    _left: dict[str, float] = field(default_factory=dict)
    _queues: dict[str, deque[Candidate]] = field(default_factory=dict)
    _candidates: list[tuple[tuple[object, ...], Candidate]] = field(default_factory=list)

    def choose(self, candidates: Sequence[Candidate]) -> None:
        """Take in jobs until there is no CPU left, or nobody."""
        eligible = [entry for entry in candidates if not entry.is_hopeless] or list(candidates)
        users = [entry for entry in eligible if self._uses_accelerators(entry)]
        for entry in sorted(users, key=_accelerator_rank):
            for share in self.held[entry.job.id]:
                self._left[share.id] = 1.0
                self._queues.setdefault(share.id, deque()).append(entry)
        self._candidates = [(entry.rank, entry) for entry in eligible if not self._uses_accelerators(entry)]
        self._candidates += [(entry.rank, entry) for entry in users if self._is_first(entry)]
        heapq.heapify(self._candidates)
        while self._candidates and self.cores > _NO_ROOM:
            _, entry = heapq.heappop(self._candidates)
            part = self._part(entry)
            if part > 0:
                self.parts[entry.job.id] = part
                self.cores -= part * entry.cores
            if self._uses_accelerators(entry):
                self._pass_on(entry, part)

    def cores_of(self, entry: Candidate) -> float:
        """Cores that a job in front may use."""
        part = self.parts.get(entry.job.id, 1.0)
        return part * (entry.record.needs.most_cores if entry.record.needs is not None else entry.cores)

    def fraction_of(self, entry: Candidate) -> float:
        """What it may use of each of its accelerators."""
        part = self.parts.get(entry.job.id, 1.0)
        return part * entry.record.needs.most_fraction if entry.record.needs is not None else 0.0

    def _uses_accelerators(self, entry: Candidate) -> bool:
        return entry.record.needs is not None and entry.job.id in self.held

    def _is_first(self, entry: Candidate) -> bool:
        """Whether it is first in the queues of all its accelerators; those are in one order, so somebody always is."""
        return all(self._queues[share.id][0] is entry for share in self.held[entry.job.id])

    def _part(self, entry: Candidate) -> float:
        """The part of its full speed that there is room for; 0 where that is too little."""
        part = min(self.cores / entry.cores, 1.0)
        if not self._uses_accelerators(entry) or entry.record.needs is None:
            return part
        room = min(self._left[share.id] for share in self.held[entry.job.id])
        part = min(part, room / entry.record.needs.fraction)
        return part if part >= _LEAST_PART else 0.0

    def _pass_on(self, entry: Candidate, part: float) -> None:
        """Let those behind it in the queues of its accelerators have their turn."""
        fraction = entry.record.needs.fraction if entry.record.needs is not None else 1.0
        for share in self.held[entry.job.id]:
            self._left[share.id] = max(self._left[share.id] - part * fraction, 0.0)
            self._queues[share.id].popleft()
        following = {
            queue[0].job.id: queue[0] for share in self.held[entry.job.id] if (queue := self._queues[share.id])
        }
        for candidate in following.values():
            if self._is_first(candidate):
                heapq.heappush(self._candidates, (candidate.rank, candidate))


def _accelerator_rank(entry: Candidate) -> tuple[object, ...]:
    """The order in the queues of accelerators: as in that for CPU, but by value per second of each accelerator."""
    *before, worth, submitted_at, name = entry.rank
    needs = entry.record.needs
    per_second = needs.accelerator_per_cpu * entry.job.resources.accelerators if needs is not None else 1.0
    return (*before, worth / per_second, submitted_at, name)


def _shared(grants: Mapping[str, float], rest: Sequence[str], capacity: float, floor: float) -> dict[str, float]:
    """What those in front get in proportion to their grants, and the others the floor alike."""
    for_rest = capacity * floor if rest else 0.0
    shares = {name: grant * (capacity - for_rest) / math.fsum(grants.values()) for name, grant in grants.items()}
    return shares | {name: for_rest / len(rest) for name in rest}


def _accelerator_shares(
    names: Sequence[str],
    used: Mapping[str, float],
    hopeless: set[str],
    floor: float,
) -> dict[str, float]:
    """Fractions of one accelerator; where none of its jobs is in front, those that may get somewhere share it alike."""
    first = {name: used[name] for name in names if used.get(name, 0.0) > 0}
    if not first:
        first = {name: 1.0 for name in names if name not in hopeless}
    if not first:
        first = dict.fromkeys(names, 1.0)
    # Nobody gets less than the floor, however little it seems to use: it could not show that it needs more.
    return divide_accelerator(_shared(first, [name for name in names if name not in first], 1.0, floor))
