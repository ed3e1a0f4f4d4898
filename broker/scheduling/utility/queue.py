"""The queue of one node's jobs under the utility policy: who runs in front, and what each gets by its position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from tiercel.broker.scheduling.accelerators import Grant, grants
from tiercel.broker.scheduling.allocate import holders
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView
from tiercel.broker.scheduling.tiers import delivering_tier, next_tier
from tiercel.broker.scheduling.utility.accelerators import assignments_of, divide_node
from tiercel.broker.scheduling.utility.candidate import Candidate
from tiercel.broker.scheduling.utility.explain import sentence
from tiercel.broker.scheduling.utility.fairness import Claimant, late
from tiercel.broker.scheduling.utility.migration import Migration
from tiercel.broker.scheduling.utility.priority import with_priority
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.utility.traffic import Traffic
from tiercel.core.jobs import TierStatus
from tiercel.core.shares import Share

_NO_ROOM = 1e-9
# A job counts as late when it has less than this part of all its time to spare, or less than a second.
_MARGIN = 0.1
# So much of a node that its endpoints leave is not worth new weights for its jobs, which get it in any case.
_LEFT_OVER = 0.02
# Who has used so many times the CPU that a handing-over takes since it reached its tier, and has not handed the model
# over, waits for something else: a trial of the new version, say, or the inference server.
_HANDED_OVER_BY_THEN = 10.0
# By so much of a node the cores that answers leave must differ for another number of jobs to run in front.
_MOVES_THE_QUEUE = 0.1
_ID = attrgetter("id")
_ENDPOINT = attrgetter("endpoint")


@dataclass(frozen=True, slots=True)
class Queue:
    """What was decided for a node's jobs; it holds while none of them has news."""

    node: NodeView  # the node
    ids: frozenset[str]  # its jobs
    candidates: tuple[Candidate, ...]  # what was held of them, those first that shall run
    holds_until: float  # when somebody might be late, or a deadline weighs more; seconds since the Unix epoch
    # Part of the node's weight that they share; the rest is for endpoints. NaN while that is not settled.
    capacity: float = math.nan
    cores: float = math.nan  # cores that endpoints leave to them in the mean
    assignments: tuple[Assignment, ...] = ()  # what they get
    ahead: int = 0  # so many run in front
    held: Mapping[str, Grant] = field(default_factory=dict)  # the accelerators of each job that holds any
    fed: frozenset[str] = frozenset()  # endpoints that its jobs feed

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
        """Value per CPU second of the best of the jobs that work for a tier; a little for those that only go on.

        What applications will have of a better version does not count: it is weighed against answers now.
        """
        priority = max((entry.priority_to_tenant for entry in self.candidates if entry.status is not None), default=0.0)
        return max(priority, 1e-9) if self.candidates else 0.0


@dataclass(frozen=True, slots=True)
class Pass:
    """What counts for all nodes in one pass."""

    now: float  # seconds since the Unix epoch
    records: Mapping[str, JobRecord]  # what is held of each job
    due: Mapping[str, float]  # when each job must be over
    settings: UtilitySettings  # of the policy
    traffic: Mapping[str, Traffic] = field(default_factory=dict)  # how endpoints are asked, by name
    asked_anew: frozenset[str] = frozenset()  # endpoints for which that has changed

    def rank(self, node: NodeView, jobs: Sequence[JobView], cores: float, before: Queue | None) -> Queue:
        """The jobs of a node, those first that shall run.

        Args:
            node: The node.
            jobs: Its jobs.
            cores: What its endpoints leave of its cores.
            before: What was decided the last time, if anything was.
        """
        kept = {entry.job.id: entry for entry in before.candidates} if before is not None else {}
        candidates = []
        for job in jobs:
            entry, record = kept.get(job.id), self.records[job.id]
            same_tiers = entry is not None and entry.job.tiers is job.tiers
            traffic_value = self._traffic_value(job)
            if entry is None or not same_tiers or not entry.holds(record, traffic_value):
                entry = self._candidate(job, record, node, traffic_value)
            candidates.append(entry)
        overdue, spare = late(self._claimants(candidates, node), self.now, cores)
        held = grants(node, jobs) if any(job.resources.accelerators for job in jobs) else {}
        if held:
            overdue, spare = self._late_on_accelerators(candidates, held, overdue, spare)
        holds_until = self.now + spare / 2
        if overdue:
            candidates = [
                replace(entry, overdue_for=overdue[entry.job.id]) if entry.job.id in overdue else entry
                for entry in candidates
            ]
        if any(entry.status is not None and entry.status.tier.deadline_seconds is not None for entry in candidates):
            holds_until = self.now
        candidates.sort(key=attrgetter("rank"))
        ids, fed = frozenset(map(_ID, jobs)), frozenset(map(_ENDPOINT, jobs))
        return Queue(node, ids, tuple(candidates), holds_until, held=held, fed=fed)

    def _late_on_accelerators(
        self, candidates: Sequence[Candidate], held: Mapping[str, Grant], overdue: Mapping[str, float], spare: float
    ) -> tuple[dict[str, float], float]:
        """Those who must go first on the CPU or on one of their accelerators, and for whose sake; see :func:`.late`."""
        entries = {entry.job.id: entry for entry in candidates}
        found = dict(overdue)
        for on_accelerator in holders(held).values():
            claimants = [
                claimant
                for name in on_accelerator
                if (claimant := self._claimant_of_accelerator(entries[name])) is not None
            ]
            there, spare_there = late(claimants, self.now, 1.0)
            for name, moment in there.items():
                found[name] = min(found.get(name, math.inf), moment)
            spare = min(spare, spare_there)
        return found, spare

    def _claimant_of_accelerator(self, entry: Candidate) -> Claimant | None:
        """A job's right to be over in time, in seconds of each of its accelerators."""
        due, needs = self.due.get(entry.job.id), entry.needs
        if due is None or needs is None or entry.record.unreachable:
            return None
        reserve = max(1.0, _MARGIN * (due - entry.job.submitted_at))
        return Claimant(entry.job.id, due, entry.record.to_end * needs.accelerator_per_cpu, needs.fraction, reserve)

    def _claimants(self, candidates: Sequence[Candidate], node: NodeView) -> list[Claimant]:
        """Those whom fairness looks after."""
        return [
            self._claimant(entry, self.due[entry.job.id], node)
            for entry in candidates
            if entry.job.id in self.due and not entry.record.unreachable and entry.record.tells_end
        ]

    def _claimant(self, entry: Candidate, due: float, node: NodeView) -> Claimant:
        reserve = max(1.0, _MARGIN * (due - entry.job.submitted_at))
        return Claimant(entry.job.id, due, entry.record.to_end, min(entry.cores, node.cpu_cores), reserve)

    def _handing_over(self, job: JobView, record: JobRecord, cores: float) -> TierStatus | None:
        """The job's tier whose model it hands over with the CPU that it gets, if there is one."""
        takes = self.settings.delivery_cpu_seconds * max(cores, 1.0)
        used = record.spent - record.reached_spent
        return delivering_tier(job) if used <= _HANDED_OVER_BY_THEN * takes else None

    def _traffic_value(self, job: JobView) -> float:
        """What applications have of the job's next tier who ask its endpoint already."""
        traffic = self.traffic.get(job.endpoint)
        status = next_tier(job) if traffic is not None else None
        return traffic.value_of(job, status.tier.target) if traffic is not None and status is not None else 0.0

    def _candidate(self, job: JobView, record: JobRecord, node: NodeView, traffic_value: float) -> Candidate:
        status = next_tier(job)
        needs = record.needs
        cores = needs.cores if needs is not None else max(job.resources.cpu_cores, 1e-3)
        delivering = self._handing_over(job, record, cores)
        candidate = Candidate(
            job,
            record,
            status,
            cores,
            needs=needs,
            delivering=delivering,
            traffic_value=traffic_value,
        )
        return with_priority(candidate, node.cpu_cores, self.now, self.settings)


def share_out(
    queue: Queue,
    before: Queue | None,
    capacity: float,
    cores: float,
    migration: Migration | None,
    settings: UtilitySettings,
) -> Queue:
    """What the jobs of a node get by their position in its queue.

    Args:
        queue: The queue.
        before: The queue of the last time; what a job got then is kept as it is where nothing changes.
        capacity: Part of the node's weight that jobs share, in (0, 1].
        cores: Cores that endpoints leave to them in the mean.
        migration: The migration of this pass, if there is one.
        settings: Of the policy.
    """
    if queue.held:
        return _share_out_both(queue, capacity, cores, migration, settings)
    candidates = queue.candidates
    weights, ahead = _weights(candidates, capacity, cores, settings)
    assignments: list[Assignment] = []
    same = () if before is None or before.ahead != ahead else before.candidates[: len(before.assignments)]
    for position, (candidate, weight) in enumerate(zip(candidates, weights, strict=True)):
        if before is not None and position < len(same) and same[position] is candidate:
            told = before.assignments[position]
            if told.share.cpu_weight == weight and told.node_id == queue.node.id:
                assignments.append(told)
                continue
        reason = sentence(candidate, position, ahead, weight)
        if migration is not None and candidate.job.id == migration.job.id:
            reason = f"{migration.reason}; {reason}"
        assignments.append(Assignment(candidate.job.id, queue.node.id, Share(weight, reason=reason)))
    return replace(queue, capacity=capacity, cores=cores, assignments=tuple(assignments), ahead=ahead)


def _share_out_both(
    queue: Queue, capacity: float, cores: float, migration: Migration | None, settings: UtilitySettings
) -> Queue:
    """The same where some of them hold accelerators: these are shared out with the CPU."""
    division = divide_node(
        queue.candidates,
        queue.held,
        cores=cores,
        capacity=capacity,
        floor=settings.floor,
    )
    told_first = {migration.job.id: migration.reason} if migration is not None else {}
    assignments = assignments_of(division, queue.held, queue.node, told_first)
    return replace(
        queue,
        candidates=division.order,
        capacity=capacity,
        cores=cores,
        assignments=assignments,
        ahead=division.ahead,
    )


def _weights(
    candidates: Sequence[Candidate], capacity: float, cores: float, settings: UtilitySettings
) -> tuple[list[float], int]:
    """The weights of the jobs in a queue, and how many of them are in front."""
    eligible = sum(not entry.is_hopeless for entry in candidates) or len(candidates)
    granted: list[float] = []
    left = cores
    for entry in candidates[:eligible]:
        if left <= _NO_ROOM:
            break
        granted.append(min(entry.cores, left))
        left -= granted[-1]
    ahead, total = len(granted), sum(granted)
    rest = candidates[ahead:]
    floor = capacity * settings.floor if rest else 0.0
    if not granted:
        return [], 0
    weights = [part / total * (capacity - floor) for part in granted]
    return weights + [floor / len(rest) for _ in rest], ahead
