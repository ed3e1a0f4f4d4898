"""The jobs of one node in line under the utility policy: who runs in front, and what each gets by its place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from tiercel.broker.scheduling.accelerators import Grant, grants
from tiercel.broker.scheduling.allocate import holders
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView
from tiercel.broker.scheduling.tiers import delivering_tier, next_tier
from tiercel.broker.scheduling.utility.devices import assignments_of, divide_node
from tiercel.broker.scheduling.utility.guard import Claimant, late
from tiercel.broker.scheduling.utility.moves import Move
from tiercel.broker.scheduling.utility.outlook import JobRecord
from tiercel.broker.scheduling.utility.reasons import Standing, sentence
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.utility.traffic import Traffic
from tiercel.broker.scheduling.utility.worth import appraised
from tiercel.core.jobs import TierStatus
from tiercel.core.shares import Share

_NO_ROOM = 1e-9
# So much of a node that its endpoints leave is not worth new weights for its jobs, which get it in any case.
_LEFT_OVER = 0.02
# Who has used so many times the CPU that a handing-over takes since it reached its tier, and has not handed the model
# over, waits for something else: a trial of the new version, say, or the inference server.
_HANDED_OVER_BY_THEN = 10.0
# By so much of a node the cores that answers leave must differ for another number of jobs to run in front.
_MOVES_THE_LINE = 0.1
_ID = attrgetter("id")
_ENDPOINT = attrgetter("endpoint")


@dataclass(frozen=True, slots=True)
class Line:
    """What was decided for a node's jobs; it holds while none of them has news.

    Attributes:
        node: The node.
        ids: Its jobs.
        standings: What was held of them, those first that shall run.
        holds_until: When somebody might be late, or a deadline weighs more; seconds since the Unix epoch.
        capacity: Part of the node's weight that they share; the rest is for endpoints. NaN while that is not settled.
        cores: Cores that endpoints leave to them in the mean.
        assignments: What they get.
        front: Those that run in front.
        held: The accelerators of each job that holds any.
        fed: Endpoints that its jobs feed.
    """

    node: NodeView
    ids: frozenset[str]
    standings: tuple[Standing, ...]
    holds_until: float
    capacity: float = math.nan
    cores: float = math.nan
    assignments: tuple[Assignment, ...] = ()
    front: frozenset[str] = frozenset()
    held: Mapping[str, Grant] = field(default_factory=dict)
    fed: frozenset[str] = frozenset()

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
        return settled and abs(cores - self.cores) <= _MOVES_THE_LINE * self.node.cpu_cores

    @property
    def worth(self) -> float:
        """Value per CPU second of the best of the jobs that work for a tier; a little for those that only go on.

        What applications will have of a better version does not count: it is weighed against answers now.
        """
        worth = max((entry.worth_to_tenant for entry in self.standings if entry.status is not None), default=0.0)
        return max(worth, 1e-9) if self.standings else 0.0


@dataclass(frozen=True, slots=True)
class Pass:
    """What counts for all nodes in one pass.

    Attributes:
        now: Seconds since the Unix epoch.
        records: What is held of each job.
        due: When each job must be over.
        front: Jobs that ran in front.
        settings: Of the policy.
        traffic: How endpoints are asked, by name.
        asked_anew: Endpoints for which that has changed.
    """

    now: float
    records: Mapping[str, JobRecord]
    due: Mapping[str, float]
    front: frozenset[str]
    settings: UtilitySettings
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    asked_anew: frozenset[str] = frozenset()

    def line_up(self, node: NodeView, jobs: Sequence[JobView], cores: float, before: Line | None) -> Line:
        """The jobs of a node, those first that shall run.

        Args:
            node: The node.
            jobs: Its jobs.
            cores: What its endpoints leave of its cores.
            before: What was decided the last time, if anything was.
        """
        kept = {entry.job.id: entry for entry in before.standings} if before is not None else {}
        standings = []
        for job in jobs:
            entry, record = kept.get(job.id), self.records[job.id]
            same_tiers = entry is not None and entry.job.tiers is job.tiers
            traffic_value = self._traffic_value(job)
            if entry is None or not same_tiers or not entry.holds(record, traffic_value, in_front=job.id in self.front):
                entry = self._standing(job, record, node, traffic_value)
            standings.append(entry)
        hurried, spare = late(self._claimants(standings, node), self.now, cores)
        held = grants(node, jobs) if any(job.resources.accelerators for job in jobs) else {}
        if held:
            hurried, spare = self._late_on_devices(standings, held, hurried, spare)
        holds_until = self.now + spare / 2
        if hurried:
            standings = [
                replace(entry, hurried_for=hurried[entry.job.id]) if entry.job.id in hurried else entry
                for entry in standings
            ]
        if any(entry.status is not None and entry.status.tier.deadline_seconds is not None for entry in standings):
            holds_until = self.now
        standings.sort(key=attrgetter("rank"))
        ids, fed = frozenset(map(_ID, jobs)), frozenset(map(_ENDPOINT, jobs))
        return Line(node, ids, tuple(standings), holds_until, held=held, fed=fed)

    def _late_on_devices(
        self, standings: Sequence[Standing], held: Mapping[str, Grant], hurried: Mapping[str, float], spare: float
    ) -> tuple[dict[str, float], float]:
        """Those who must go first on the CPU or on one of their devices, and for whose sake; see :func:`.late`."""
        entries = {entry.job.id: entry for entry in standings}
        found = dict(hurried)
        for on_device in holders(held).values():
            claimants = [
                claimant for name in on_device if (claimant := self._claimant_of_device(entries[name])) is not None
            ]
            there, spare_there = late(claimants, self.now, 1.0)
            for name, moment in there.items():
                found[name] = min(found.get(name, math.inf), moment)
            spare = min(spare, spare_there)
        return found, spare

    def _claimant_of_device(self, entry: Standing) -> Claimant | None:
        """A job's right to be over in time, in seconds of each of its devices."""
        due, needs = self.due.get(entry.job.id), entry.needs
        if due is None or needs is None or entry.record.unreachable:
            return None
        reserve = max(1.0, self.settings.guard_margin * (due - entry.job.submitted_at))
        return Claimant(entry.job.id, due, entry.record.to_end * needs.device_per_cpu, needs.fraction, reserve)

    def _claimants(self, standings: Sequence[Standing], node: NodeView) -> list[Claimant]:
        """Those whom the guard looks after."""
        return [
            self._claimant(entry, self.due[entry.job.id], node)
            for entry in standings
            if entry.job.id in self.due and not entry.record.unreachable
        ]

    def _claimant(self, entry: Standing, due: float, node: NodeView) -> Claimant:
        reserve = max(1.0, self.settings.guard_margin * (due - entry.job.submitted_at))
        return Claimant(entry.job.id, due, entry.record.to_end, min(entry.cores, node.cpu_cores), reserve)

    def _handing_over(self, job: JobView, record: JobRecord, cores: float) -> TierStatus | None:
        """The job's tier whose model it hands over with the CPU that it gets, if there is one."""
        takes = self.settings.delivery_cpu_seconds * max(cores, 1.0)
        used = record.seen_spent - record.reached_spent
        return delivering_tier(job) if used <= _HANDED_OVER_BY_THEN * takes else None

    def _traffic_value(self, job: JobView) -> float:
        """What applications have of the job's next tier who ask its endpoint already."""
        traffic = self.traffic.get(job.endpoint)
        status = next_tier(job) if traffic is not None else None
        return traffic.value_of(job, status.tier.target) if traffic is not None and status is not None else 0.0

    def _standing(self, job: JobView, record: JobRecord, node: NodeView, traffic_value: float) -> Standing:
        status, in_front = next_tier(job), job.id in self.front
        needs = record.needs
        cores = needs.cores if needs is not None else max(min(record.usable, job.resources.cpu_cores), 1e-3)
        delivering = self._handing_over(job, record, cores)
        standing = Standing(
            job,
            record,
            status,
            cores,
            in_front=in_front,
            needs=needs,
            delivering=delivering,
            traffic_value=traffic_value,
        )
        return appraised(standing, node.cpu_cores, self.now, self.settings)


def share_out(
    line: Line, before: Line | None, capacity: float, cores: float, move: Move | None, settings: UtilitySettings
) -> Line:
    """What the jobs of a node get by their place in line.

    Args:
        line: The line.
        before: The line of the last time; what a job got then is kept as it is where nothing changes.
        capacity: Part of the node's weight that jobs share, in (0, 1].
        cores: Cores that endpoints leave to them in the mean.
        move: The migration of this pass, if there is one.
        settings: Of the policy.
    """
    if line.held:
        return _share_out_both(line, capacity, cores, move, settings)
    standings = line.standings
    weights, ahead = _weights(standings, capacity, cores, settings)
    assignments: list[Assignment] = []
    same = () if before is None or len(before.front) != ahead else before.standings[: len(before.assignments)]
    for position, (standing, weight) in enumerate(zip(standings, weights, strict=True)):
        if before is not None and position < len(same) and same[position] is standing:
            told = before.assignments[position]
            if told.share.cpu_weight == weight and told.node_id == line.node.id:
                assignments.append(told)
                continue
        reason = sentence(standing, position, ahead, weight)
        if move is not None and standing.job.id == move.job.id:
            reason = f"{move.reason}; {reason}"
        assignments.append(Assignment(standing.job.id, line.node.id, Share(weight, reason=reason)))
    front = frozenset(standing.job.id for standing in standings[:ahead])
    return replace(line, capacity=capacity, cores=cores, assignments=tuple(assignments), front=front)


def _share_out_both(line: Line, capacity: float, cores: float, move: Move | None, settings: UtilitySettings) -> Line:
    """The same where some of them hold accelerators: these are shared out with the CPU."""
    division = divide_node(
        line.standings,
        line.held,
        cores=cores,
        capacity=capacity,
        floor=settings.floor,
        exploration=settings.exploration,
    )
    told_first = {move.job.id: move.reason} if move is not None else {}
    assignments = assignments_of(division, line.held, line.node, told_first)
    front = frozenset(entry.job.id for entry in division.order[: division.ahead])
    return replace(line, standings=division.order, capacity=capacity, cores=cores, assignments=assignments, front=front)


def _weights(
    standings: Sequence[Standing], capacity: float, cores: float, settings: UtilitySettings
) -> tuple[list[float], int]:
    """The weights of jobs in line, and how many of them are in front."""
    eligible = sum(not entry.is_hopeless for entry in standings) or len(standings)
    granted: list[float] = []
    left = cores
    for entry in standings[:eligible]:
        if left <= _NO_ROOM:
            break
        granted.append(min(entry.cores, left))
        left -= granted[-1]
    ahead, total = len(granted), sum(granted)
    rest = standings[ahead:]
    claims = [settings.exploration if entry.is_new else 1.0 for entry in rest]
    floor = capacity * settings.floor if rest else 0.0
    if not granted:
        return [], 0
    weights = [part / total * (capacity - floor) for part in granted]
    scale = floor / sum(claims) if claims else 0.0
    return weights + [claim * scale for claim in claims], ahead
