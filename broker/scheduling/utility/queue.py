"""The jobs of one node under the utility policy: who goes first, and what each gets of its CPU and accelerators.

Those with the largest index get what they can use of every resource, as long as there is any; the others share a floor
of each. A job that competes for an accelerator stands in the queue for CPU by its index there, and its place goes to
whoever makes most of a second of that accelerator: so no accelerator idles for want of a little CPU, and a job that
waits for one leaves its CPU to others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.accelerators import Grant, grants
from tiercel.broker.scheduling.allocate import beside_floor, divide_accelerator, holders, with_fractions
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView
from tiercel.broker.scheduling.utility.candidate import Candidate, candidate, sentence
from tiercel.broker.scheduling.utility.fairness import late
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.broker.scheduling.utility.serving import Traffic
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.shares import Share

_NO_ROOM = 1e-9


@dataclass(frozen=True, slots=True)
class Queue:
    """What was decided for a node's jobs, and all that it rests on: it holds while none of that is other."""

    node: NodeView  # the node
    key: tuple[object, ...]  # all else that the order rests on
    candidates: Sequence[Candidate]  # its jobs, those first that shall run
    held: Mapping[str, Grant]  # the accelerators of each job that holds any
    parts: Mapping[str, float]  # of those in front, the part of their full speed that there is room for
    # When somebody might be late, a deadline weighs more, or a model may be handed over; seconds since the Unix epoch.
    holds_until: float
    priority: float  # value per CPU second of the best of the jobs; 0 without any
    capacity: float = 0.0  # part of the node's weight that they share; 0 while that is not settled
    assignments: tuple[Assignment, ...] = ()  # what they get

    def shared_out(self, capacity: float, floor: float) -> Queue:
        """The queue with what its jobs get of the CPU and of the accelerators that they hold, those in front first.

        Args:
            capacity: Part of the node's weight that they share, in (0, 1]; the rest is for endpoints.
            floor: What all that are not in front get together, a fraction of it.
        """
        if capacity == self.capacity:
            return self
        of = {entry.job.id: entry for entry in self.candidates}
        cores = {name: part * of[name].record.needs.most_cores for name, part in self.parts.items()}
        weights = beside_floor(cores, list(of), capacity, floor)
        fractions = {on: self._of_accelerator(on_it, floor) for on, on_it in holders(self.held).items()}
        assignments = []
        for position, name in enumerate(sorted(of, key=lambda name: name not in self.parts)):
            share = Share(weights[name], reason=sentence(of[name], position, len(self.parts), weights[name]))
            if name in self.held:
                share = with_fractions(share, name, self.held[name], fractions, self.node)
            assignments.append(Assignment(name, self.node.id, share))
        return replace(self, capacity=capacity, assignments=tuple(assignments))

    def _of_accelerator(self, names: Sequence[str], floor: float) -> dict[str, float]:
        """Fractions of an accelerator; where nobody on it is in front, those share it alike that may get somewhere."""
        of = {entry.job.id: entry for entry in self.candidates}
        used = {name: self.parts[name] * of[name].record.needs.most_fraction for name in names if name in self.parts}
        used = used or {name: 1.0 for name in names if not of[name].is_hopeless} or dict.fromkeys(names, 1.0)
        # Nobody gets less than the floor, however little it seems to use: it could not show that it needs more.
        return divide_accelerator(beside_floor(used, names, 1.0, floor))


@dataclass(frozen=True, slots=True)
class Pass:
    """What counts for all nodes in one pass."""

    now: float  # seconds since the Unix epoch
    records: Mapping[str, JobRecord]  # what is held of each job
    traffic: Mapping[str, Traffic]  # how endpoints are asked, by name
    due: Mapping[str, float]  # when each job must be over
    given: Mapping[str, float]  # see :attr:`.Snapshot.given`
    settings: UtilitySettings  # of the policy

    def rank(self, node: NodeView, jobs: Sequence[JobView], cores: float, before: Queue | None) -> Queue:
        """The jobs of a node, those first that shall run, or what was decided last where nothing is new.

        Args:
            node: The node.
            jobs: Those that it has or shall have.
            cores: What answers leave of its cores.
            before: What was decided last, or None.
        """
        key = (cores, *((self.records[job.id], self.traffic.get(job.endpoint)) for job in jobs))
        if before is not None and self.now < before.holds_until and before.node is node and before.key == key:
            return before
        held = grants(node, jobs)
        candidates, spare = self._ranked(jobs, node.cpu_cores, cores, self.given.get(node.id, 1.0))
        until = self.now if any(entry.is_timed for entry in candidates) else self.now + spare / 2
        worth = max((entry.priority for entry in candidates), default=0.0)
        return Queue(node, key, candidates, held, _in_front(candidates, held, cores), until, worth)

    def line(self, jobs: Sequence[JobView], cores: float) -> list[JobView]:
        """Jobs that wait for a node, those first that shall find one: who is late, then who is worth most.

        Args:
            jobs: They.
            cores: Cores of all nodes together.
        """
        return [entry.job for entry in self._ranked(jobs, cores, cores)[0]]

    def _ranked(
        self, jobs: Sequence[JobView], most: float, cores: float, given: float = 1.0
    ) -> tuple[list[Candidate], float]:
        """Jobs that compete for so many cores, those first that go first, and the seconds until another is late."""
        records = {job.id: self.records[job.id] for job in jobs}
        claims = (
            (self.due[name], name, record.to_end, given * min(record.needs.cores, most))
            for name, record in records.items()
            if name in self.due and not record.unreachable
        )
        overdue, spare = late(claims, self.now, given * cores)
        entries = [
            candidate(
                record,
                self.traffic.get(record.job.endpoint),
                most,
                self.now,
                overdue.get(name, math.inf),
                self.settings,
            )
            for name, record in records.items()
        ]
        return sorted(entries, key=Candidate.rank), spare


def _in_front(candidates: Sequence[Candidate], held: Mapping[str, Grant], cores: float) -> dict[str, float]:
    """Who runs in front: by job, the part of its full speed that there is room for, in (0, 1]."""
    eligible = [entry for entry in candidates if not entry.is_hopeless] or candidates
    uses = {name: {share.id for share in grant} for name, grant in held.items()}
    users = sorted((e for e in eligible if e.job.id in uses), key=lambda entry: entry.rank(on_accelerators=True))
    left = {share.id: 1.0 for grant in held.values() for share in grant}
    parts: dict[str, float] = {}
    for place in eligible:
        mine = uses.get(place.job.id, set())  # its place is for whoever makes most of its accelerators
        entry = next((user for user in users if mine & uses[user.job.id]), place)
        users = [user for user in users if user is not entry]
        name, needs, mine = entry.job.id, entry.record.needs, uses.get(entry.job.id, set())
        part = min(1.0, cores / needs.cores, *(left[each] / needs.fraction for each in mine))
        if part > _NO_ROOM and name not in parts:
            parts[name] = part
            cores -= part * needs.cores
            left |= {each: left[each] - part * needs.fraction for each in mine}
    return parts
