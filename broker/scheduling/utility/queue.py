"""The queue of one node's jobs under the utility policy: who goes first, and what each gets by its position."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from tiercel.broker.scheduling.accelerators import Grant, grants
from tiercel.broker.scheduling.allocate import holders, with_fractions
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView
from tiercel.broker.scheduling.tiers import next_tier
from tiercel.broker.scheduling.utility.accelerators import divide_node
from tiercel.broker.scheduling.utility.candidate import Candidate, candidate, sentence
from tiercel.broker.scheduling.utility.fairness import Claimant, late
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.utility.traffic import Traffic
from tiercel.core.shares import Share

# A job counts as late when it has less than this part of all its time to spare, or less than a second.
_MARGIN = 0.1
# So much of a node that its endpoints leave is not worth new weights for its jobs, which get it in any case.
_LEFT_OVER = 0.02
# By so much of a node the cores that answers leave must differ for another number of jobs to run in front.
_MOVES_THE_QUEUE = 0.1
_ID = attrgetter("id")
_ENDPOINT = attrgetter("endpoint")
_RANK = attrgetter("rank")


@dataclass(frozen=True, slots=True)
class Queue:
    """What was decided for a node's jobs; it holds while none of them has news."""

    node: NodeView  # the node
    ids: frozenset[str]  # its jobs
    fed: frozenset[str]  # endpoints that its jobs feed
    held: Mapping[str, Grant]  # the accelerators of each job that holds any
    candidates: tuple[Candidate, ...]  # what is held of its jobs, those first that shall run
    # When somebody might be late, a deadline weighs more, or a model may be handed over; seconds since the Unix epoch.
    holds_until: float
    # Part of the node's weight that they share; the rest is for endpoints. NaN while that is not settled.
    capacity: float = math.nan
    cores: float = math.nan  # cores that endpoints leave to them in the mean
    assignments: tuple[Assignment, ...] = ()  # what they get

    def holds(
        self, node: NodeView, jobs: Sequence[JobView], changed: Sequence[str], asked_anew: frozenset[str], now: float
    ) -> bool:
        """Whether the order need not be decided again.

        Args:
            node: The node.
            jobs: Its jobs.
            changed: Those that have news.
            asked_anew: Endpoints that are asked otherwise than before.
            now: Seconds since the Unix epoch.
        """
        return (
            now < self.holds_until
            and self.node is node
            and len(jobs) == len(self.ids)
            and self.ids.issuperset(map(_ID, jobs))
            and self.ids.isdisjoint(changed)
            and self.fed.isdisjoint(asked_anew)
        )

    def is_settled(self, capacity: float, cores: float) -> bool:
        """Whether what the endpoints of the node leave is still about what its jobs share."""
        settled = self.capacity <= capacity <= self.capacity + _LEFT_OVER
        return settled and abs(cores - self.cores) <= _MOVES_THE_QUEUE * self.node.cpu_cores

    @property
    def priority(self) -> float:
        """Value per CPU second of the best of the jobs that work for a tier; a little for those that only go on."""
        priority = max((entry.priority for entry in self.candidates if entry.status is not None), default=0.0)
        return max(priority, 1e-9) if self.candidates else 0.0

    def shared_out(self, capacity: float, cores: float, told_first: Mapping[str, str], floor: float) -> Queue:
        """The queue with what its jobs get by their positions.

        Args:
            capacity: Part of the node's weight that jobs share, in (0, 1].
            cores: Cores that endpoints leave to them in the mean.
            told_first: What is told of a job before all else, by id.
            floor: What all that are not in front get together, a fraction.
        """
        division = divide_node(self.candidates, self.held, cores=cores, capacity=capacity, floor=floor)
        assignments = []
        for position, entry in enumerate(division.order):
            name = entry.job.id
            weight = division.weights[name]
            reason = sentence(entry, position, division.ahead, weight)
            share = Share(weight, reason=f"{told_first[name]}; {reason}" if name in told_first else reason)
            if name in self.held:
                share = with_fractions(share, name, self.held[name], division.fractions, self.node)
            assignments.append(Assignment(name, self.node.id, share))
        return replace(self, capacity=capacity, cores=cores, assignments=tuple(assignments))


@dataclass(frozen=True, slots=True)
class Pass:
    """What counts for all nodes in one pass."""

    now: float  # seconds since the Unix epoch
    records: Mapping[str, JobRecord]  # what is held of each job
    due: Mapping[str, float]  # when each job must be over
    settings: UtilitySettings  # of the policy
    traffic: Mapping[str, Traffic] = field(default_factory=dict)  # how endpoints are asked, by name
    asked_anew: frozenset[str] = frozenset()  # endpoints for which that has changed

    def rank(self, node: NodeView, jobs: Sequence[JobView], cores: float) -> Queue:
        """The jobs of a node, those first that shall run.

        Args:
            node: The node.
            jobs: Its jobs.
            cores: What its endpoints leave of its cores.
        """
        entries = {job.id: self.candidate(job, node.cpu_cores) for job in jobs}
        held = grants(node, jobs) if any(job.resources.accelerators for job in jobs) else {}
        overdue, spare = late(self._claimants(entries.values(), node.cpu_cores), self.now, cores)
        for names in holders(held).values():
            there, spare_there = late(self._on_accelerator([entries[name] for name in names]), self.now, 1.0)
            spare = min(spare, spare_there)
            overdue |= {name: min(overdue.get(name, math.inf), moment) for name, moment in there.items()}
        for name, moment in overdue.items():
            entries[name] = replace(entries[name], overdue_for=moment)
        timed = any(entry.status is not None and entry.status.tier.deadline_seconds for entry in entries.values())
        timed = timed or any(entry.delivering is not None for entry in entries.values())
        return Queue(
            node,
            frozenset(entries),
            frozenset(map(_ENDPOINT, jobs)),
            held,
            tuple(sorted(entries.values(), key=_RANK)),
            holds_until=self.now if timed else self.now + spare / 2,
        )

    def line(self, jobs: Sequence[JobView], cores: float) -> list[JobView]:
        """Jobs that wait for a node, those first that shall find one: who is late, then who is worth most.

        Args:
            jobs: They.
            cores: Cores of all nodes together.
        """
        entries = [self.candidate(job, cores) for job in jobs]
        overdue, _ = late(self._claimants(entries, cores, waiting=True), self.now, cores)
        ranked = [replace(entry, overdue_for=overdue.get(entry.job.id, math.inf)) for entry in entries]
        return [entry.job for entry in sorted(ranked, key=_RANK)]

    def candidate(self, job: JobView, most_cores: float) -> Candidate:
        """A job as it competes for so many cores."""
        asked, status = self.traffic.get(job.endpoint), next_tier(job)
        traffic = asked.value_of(job, status.tier.target) if asked is not None and status is not None else 0.0
        return candidate(job, self.records[job.id], most_cores, traffic, self.now, self.settings)

    def _claimants(self, entries: Iterable[Candidate], most_cores: float, *, waiting: bool = False) -> list[Claimant]:
        """Those whom fairness looks after, and what each still needs of the CPU."""
        # Of the end of a job that has never run nothing is known; it would never begin if it had to be.
        return [
            Claimant(entry.job.id, self.due[entry.job.id], entry.record.to_end, cores, self._reserve(entry.job))
            for entry in entries
            if entry.job.id in self.due and not entry.record.unreachable and (waiting or entry.record.tells_end)
            for cores in (min(entry.cores, most_cores),)
        ]

    def _on_accelerator(self, entries: Iterable[Candidate]) -> list[Claimant]:
        """The same of an accelerator that they hold."""
        return [
            Claimant(entry.job.id, self.due[entry.job.id], seconds, needs.fraction, self._reserve(entry.job))
            for entry in entries
            if entry.job.id in self.due and not entry.record.unreachable and (needs := entry.record.needs) is not None
            for seconds in (entry.record.to_end * needs.accelerator_per_cpu,)
        ]

    def _reserve(self, job: JobView) -> float:
        return max(1.0, _MARGIN * (self.due[job.id] - job.submitted_at))
