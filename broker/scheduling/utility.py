"""Our own policy: CPU goes where it buys the most utility per second (DESIGN §5).

One currency prices everything. A job is worth ``value of its next tier x tenant's weight`` times the chance per CPU
second that it gets there: the Gittins index of a forecast that comes from earlier runs of the same program, from its
own curve or from what other jobs needed (:mod:`.learning_curves`). With forecasts that are sure this is shortest
remaining work first, with none it is close to least attained service, and a job that may never get there is worth
little without being given up. Tiers beyond the first are discounted, so that a first usable model comes before a
better one.

Who is worth most runs, as many at a time as there are cores, and everybody else keeps a small floor: a live trial
showed that this is where most of the gain lies, whatever the order (live §3). Around that:

* the order changes only for a clear difference (``hysteresis``);
* new jobs keep a larger floor until they have shown something (``exploration``);
* a tier out of reach loses its place in line, its tenant is told, progress brings it back (:mod:`.utility_outlook`);
* nobody is kept waiting for much longer than under equal sharing (:mod:`.utility_guard`);
* waiting jobs go where the least work is left, running ones move where a node would idle (:mod:`.utility_moves`);
* endpoints with a delay objective get what their requests need, and are only limited where they compete with each
  other (:mod:`.utility_contest`); jobs share what answers leave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import chain
from operator import attrgetter, itemgetter

from tiercel.broker.domain.jobs import Direction
from tiercel.broker.domain.shares import Share
from tiercel.broker.scheduling.interface import (
    Assignment,
    EndpointView,
    JobView,
    NodeView,
    Plan,
    Snapshot,
    Trigger,
)
from tiercel.broker.scheduling.learning_curves import Forecast, PastCurve, past_curves
from tiercel.broker.scheduling.placement import jobs_by_node, place, submission_order
from tiercel.broker.scheduling.utility_contest import serve
from tiercel.broker.scheduling.utility_guard import Account, Claimant, FairClock, advanced, fair_finishes, late
from tiercel.broker.scheduling.utility_moves import Move, choose_move, least_work_left
from tiercel.broker.scheduling.utility_outlook import (
    JobRecord,
    looked_at,
    new_record,
    next_status,
    prior_of,
    renewed,
    samples_of,
    spent_by,
    stage_of,
    staleness,
)
from tiercel.broker.scheduling.utility_reasons import Standing, sentence
from tiercel.broker.scheduling.utility_serving import Answering, EndpointRecord, cores_left, observe
from tiercel.broker.scheduling.utility_settings import UtilitySettings

# Works of jobs that reached their first tier under this policy: a prior for programs that never ran before.
_SAMPLES_KEPT = 64
_NO_ROOM = 1e-9
# Fewer jobs than this part that came or went since do not change what fair sharing would give to the others.
_FEW = 0.01
# So much of a node that its endpoints leave is not worth new weights for its jobs, which get it in any case.
_LEFT_OVER = 0.02
# By so much of a node the cores that answers leave must differ for another number of jobs to run in front.
_MOVES_THE_LINE = 0.1
_ID = attrgetter("id")
# After these a node may have nothing to do.
_MAY_IDLE = frozenset({Trigger.EXIT, Trigger.NODE})


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
    """

    node: NodeView
    ids: frozenset[str]
    standings: tuple[Standing, ...]
    holds_until: float
    capacity: float = math.nan
    cores: float = math.nan
    assignments: tuple[Assignment, ...] = ()
    front: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UtilityState:
    """What is remembered between passes.

    Attributes:
        records: By job.
        front: Jobs that ran in front.
        samples: CPU seconds that jobs needed to their first tier, the latest last.
        prior: What follows from them for jobs of which nothing is known; None when it has to be worked out anew.
        fair: The virtual cluster with equal shares.
        endpoints: By endpoint.
        moved_at: When the last job was sent elsewhere, seconds since the Unix epoch.
        reviewed_at: When fair shares and migrations were last looked at for no other reason than time.
        views: Jobs as they were seen last: one that is the same object has no news.
        waiting: Jobs whose forecasts are to be renewed and had to wait for the next pass, and by what fraction the
            work behind these had grown, negative.
        due: When each job must be over.
        lines: By node, what was decided there while nothing is new.
    """

    records: Mapping[str, JobRecord] = field(default_factory=dict)
    front: frozenset[str] = frozenset()
    samples: tuple[float, ...] = ()
    prior: Forecast | None = None
    fair: FairClock = field(default_factory=FairClock)
    endpoints: Mapping[str, EndpointRecord] = field(default_factory=dict)
    moved_at: float = -math.inf
    reviewed_at: float = -math.inf
    views: Mapping[str, JobView] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    due: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, Line] = field(default_factory=dict)


@dataclass(slots=True)
class _FirstLooks:
    """What first looks gave; local to one pass."""

    records: dict[str, JobRecord] = field(default_factory=dict)
    learnt: list[float] = field(default_factory=list)
    postponed: dict[str, float] = field(default_factory=dict)
    fits: int = 0


@dataclass(frozen=True, slots=True)
class _Observed:
    """What a look at all jobs gave; local to one pass."""

    records: dict[str, JobRecord]
    views: dict[str, JobView]
    learnt: list[float]
    changed: set[str]
    waiting: dict[str, float]
    came_or_went: int


class UtilityPolicy:
    """Runs what is worth most per CPU second; see the module's description."""

    name: str = "utility"

    def __init__(self, settings: UtilitySettings | None = None) -> None:
        self.settings = settings or UtilitySettings()
        self._outlook = self.settings.outlook
        self._serving = self.settings.serving
        self._moves = self.settings.moves

    def initial_state(self) -> UtilityState:
        """Nothing is known of any job."""
        return UtilityState()

    def plan(self, snapshot: Snapshot, state: UtilityState) -> tuple[Plan, UtilityState]:
        """Renew what is held of jobs, place them, and share each node by worth."""
        prior = state.prior if state.prior is not None else self._prior(snapshot, state)
        seen = self._observe(snapshot, state, prior)
        records = seen.records
        nodes = {node.id: node for node in snapshot.nodes}
        views = sorted(snapshot.endpoints, key=attrgetter("name"))
        endpoint_records = observe(views, nodes, state.endpoints, snapshot.now, self._serving)
        left = cores_left(snapshot.nodes, views, endpoint_records)
        answering = Answering.now(views, endpoint_records)
        placement = place(snapshot, least_work_left(records, left, answering))
        waited = snapshot.now - state.reviewed_at >= self.settings.review_seconds
        fair, due = state.fair, state.due
        if waited or seen.came_or_went > _FEW * len(seen.views):
            fair, due = self._fair(snapshot, state.fair, records, left)
        groups = jobs_by_node(snapshot, placement)
        moved_at, move = state.moved_at, None
        if self.settings.migrate and (waited or snapshot.trigger in _MAY_IDLE):
            move = choose_move(snapshot, groups, records, left, answering, state.moved_at, self._moves)
        if move is not None:
            moved_at = snapshot.now
            groups[move.source] = [job for job in groups[move.source] if job.id != move.job.id]
            groups.setdefault(move.target, []).append(move.job)
        endpoints = _with_objectives(views, endpoint_records)
        lines: dict[str, Line] = {}
        news: dict[str, list[str]] = {}
        for name in seen.changed:
            news.setdefault(placement.node_of.get(name, ""), []).append(name)
        shares: dict[str, Share] = {}
        for node in sorted(snapshot.nodes, key=attrgetter("id")):
            jobs = groups.get(node.id, [])
            asked = endpoints.get(node.id, ())
            line = before = state.lines.get(node.id)
            if line is None or not _still_holds(line, node, jobs, news.get(node.id, ()), snapshot.now):
                cores = left.get(node.id, node.cpu_cores)
                standings, holds_until = self._line(jobs, records, node, cores, snapshot.now, due, state.front, line)
                line = Line(node, frozenset(job.id for job in jobs), tuple(standings), holds_until)
            capacity = 1.0
            if asked:
                worth = _worth(line.standings) if len(asked) > 1 else 0.0  # one alone competes with nobody
                serving = serve(asked, node, worth, endpoint_records, self._serving)
                shares.update(serving.shares)
                endpoint_records.update(serving.changed)
                capacity = serving.capacity
            cores = min(left.get(node.id, node.cpu_cores), capacity * node.cpu_cores)
            settled = _is_settled(line, capacity, cores)
            lines[node.id] = line if settled else self._share(line, before, capacity, cores, move)
        assignments = tuple(chain.from_iterable(line.assignments for line in lines.values()))
        front = frozenset(chain.from_iterable(line.front for line in lines.values()))
        unreachable = {name: record.unreachable for name, record in records.items() if record.unreachable}
        plan = Plan(assignments, placement.waiting, dict(sorted(unreachable.items())), shares)
        records = _with_fronts(records, state.front, front, snapshot.now)
        reviewed_at = snapshot.now if waited else state.reviewed_at
        samples = (*state.samples, *seen.learnt)[-_SAMPLES_KEPT:]
        kept = None if seen.learnt else prior
        return plan, UtilityState(
            records,
            front,
            samples,
            kept,
            fair,
            endpoint_records,
            moved_at,
            reviewed_at,
            seen.views,
            seen.waiting,
            due,
            lines,
        )

    def _observe(self, snapshot: Snapshot, state: UtilityState, prior: Forecast) -> _Observed:
        """Records of all jobs, those renewed that have the most news."""
        views = {job.id: job for job in snapshot.jobs}
        came_or_went = len(views.keys() ^ state.due.keys()) if self.settings.guard_ratio else 0
        records = {name: record for name, record in state.records.items() if name in views}
        learnt_since = prior is not state.prior
        changed: set[str] = set()
        waiting = {name: grown for name, grown in state.waiting.items() if name in views}
        fresh: list[JobView] = []
        for name, job in views.items():
            known, record = state.views.get(name), records.get(name)
            silent = known is not None and (known is job or _no_news(known, job))
            if silent and record is not None and not (learnt_since and record.rests_on_others):
                continue
            if record is None or record.stage != stage_of(job):
                fresh.append(job)
                waiting.pop(name, None)
                continue
            records[name] = looked_at(job, record, prior)
            changed.add(name)
            grown = staleness(job, record)
            if name in waiting or (grown >= self.settings.refit_growth and record.stage < len(job.tiers)):
                waiting[name] = -grown
        looks = self._first_looks(snapshot, state, prior, fresh)
        records.update(looks.records)
        changed.update(looks.records)
        fits = max(self.settings.fits_per_pass - looks.fits, 0)
        for name, _ in nsmallest(fits, waiting.items(), key=itemgetter(1, 0)):
            records[name] = renewed(views[name], records[name], prior, self._outlook)
            changed.add(name)
            del waiting[name]
        waiting.update(looks.postponed)
        return _Observed(records, views, looks.learnt, changed, waiting, came_or_went)

    def _first_looks(
        self, snapshot: Snapshot, state: UtilityState, prior: Forecast, jobs: Sequence[JobView]
    ) -> _FirstLooks:
        """Records of jobs that are new or have reached a tier."""
        looks = _FirstLooks()
        curves: dict[tuple[str, Direction], tuple[PastCurve, ...]] = {}
        for job in sorted(jobs, key=attrgetter("id")):
            earlier = state.records.get(job.id)
            past: tuple[PastCurve, ...] = ()
            if earlier is not None:
                past = earlier.past
            elif self.settings.use_history and job.workload in snapshot.history:
                key = (job.workload, job.direction)
                if key not in curves:
                    curves[key] = past_curves(snapshot.history[job.workload], job.direction)
                past = curves[key]
            fit = not job.observations or looks.fits < self.settings.fits_per_pass
            looks.fits += bool(job.observations) and fit
            record = new_record(job, earlier, past, prior, self._outlook, fit=fit)
            looks.records[job.id] = record
            if not fit:
                looks.postponed[job.id] = -staleness(job, record)
            if earlier is not None and earlier.stage == 0 and record.reached_spent > 0:
                looks.learnt.append(record.reached_spent)
        return looks

    def _share(self, line: Line, before: Line | None, capacity: float, cores: float, move: Move | None) -> Line:
        """What the jobs of a node get by their place in line."""
        standings = line.standings
        weights, ahead = self._weights(standings, capacity, cores)
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

    def _prior(self, snapshot: Snapshot, state: UtilityState) -> Forecast:
        """What is held of jobs of which nothing is known."""
        samples = state.samples or samples_of(snapshot.history)
        unfinished = [spent_by(job) for job in snapshot.jobs if (held := state.records.get(job.id)) and held.stage == 0]
        return prior_of(samples, sorted(unfinished), self._outlook)

    def _fair(
        self, snapshot: Snapshot, clock: FairClock, records: Mapping[str, JobRecord], left: Mapping[str, float]
    ) -> tuple[FairClock, dict[str, float]]:
        """The virtual cluster now, and when each job must be over."""
        ratio = self.settings.guard_ratio
        if not ratio or not snapshot.nodes:
            return clock, {}
        cores = {node.id: left.get(node.id, node.cpu_cores) for node in snapshot.nodes if node.cpu_cores > 0}
        jobs = {
            job.id: Account(job.submitted_at, 0.0, job.resources.cpu_cores, spent_by(job) + records[job.id].to_end)
            for job in sorted(snapshot.jobs, key=submission_order)
        }
        clock = advanced(clock, snapshot.now, cores, jobs)
        finishes = fair_finishes(clock, cores)
        return clock, {
            job.id: job.submitted_at + ratio * (finishes[job.id] - job.submitted_at) for job in snapshot.jobs
        }

    def _line(
        self,
        jobs: Sequence[JobView],
        records: Mapping[str, JobRecord],
        node: NodeView,
        cores: float,
        now: float,
        due: Mapping[str, float],
        front: frozenset[str],
        before: Line | None,
    ) -> tuple[list[Standing], float]:
        """The jobs of a node, those first that shall run, and until when that holds without any news."""
        kept = {entry.job.id: entry for entry in before.standings} if before is not None else {}
        standings = []
        for job in jobs:
            entry, record = kept.get(job.id), records[job.id]
            if entry is None or not entry.holds(record, in_front=job.id in front):
                entry = self._standing(job, record, node, now, job.id in front)
            standings.append(entry)
        claimants = [
            self._claimant(entry, due[entry.job.id], node)
            for entry in standings
            if entry.job.id in due and not entry.record.unreachable
        ]
        names, spare = late(claimants, now, cores)
        holds_until = now + spare / 2
        if names:
            lifted = {name: place for place, name in enumerate(names)}
            standings = [
                replace(entry, lifted=lifted[entry.job.id]) if entry.job.id in lifted else entry for entry in standings
            ]
        if any(entry.status is not None and entry.status.tier.deadline_seconds is not None for entry in standings):
            holds_until = now
        standings.sort(key=attrgetter("rank"))
        return standings, holds_until

    def _claimant(self, entry: Standing, due: float, node: NodeView) -> Claimant:
        reserve = max(1.0, self.settings.guard_margin * (due - entry.job.submitted_at))
        return Claimant(entry.job.id, due, entry.record.to_end, min(entry.cores, node.cpu_cores), reserve)

    def _standing(self, job: JobView, record: JobRecord, node: NodeView, now: float, in_front: bool) -> Standing:
        status = next_status(job)
        cores = max(min(record.usable, job.resources.cpu_cores), 1e-3)
        if status is None:
            worth = job.tenant_weight / record.to_end
        else:
            worth = status.tier.value * job.tenant_weight * self.settings.later_tiers**record.stage
            worth *= record.outlook.rate
            if status.tier.deadline_seconds is not None:
                left = job.submitted_at + status.tier.deadline_seconds - now
                needed = record.outlook.expected / min(cores, node.cpu_cores)
                if left >= needed > 0:
                    worth *= 1 + self.settings.urgency * needed / left
        if in_front:
            worth *= 1 + self.settings.hysteresis
        return Standing(job, record, status, cores, worth, in_front=in_front)

    def _weights(self, standings: Sequence[Standing], capacity: float, cores: float) -> tuple[list[float], int]:
        """The weights of jobs in line, and how many of them are in front."""
        eligible = sum(not entry.record.unreachable for entry in standings) or len(standings)
        granted: list[float] = []
        left = cores
        for entry in standings[:eligible]:
            if left <= _NO_ROOM:
                break
            granted.append(min(entry.cores, left))
            left -= granted[-1]
        ahead, total = len(granted), sum(granted)
        rest = standings[ahead:]
        claims = [self.settings.exploration if entry.is_new else 1.0 for entry in rest]
        floor = capacity * self.settings.floor if rest else 0.0
        if not granted:
            return [], 0
        weights = [part / total * (capacity - floor) for part in granted]
        scale = floor / sum(claims) if claims else 0.0
        return weights + [claim * scale for claim in claims], ahead


def _worth(standings: Sequence[Standing]) -> float:
    """Value per CPU second of the best of the jobs that work for a tier; a little for those that only go on."""
    worth = max((entry.worth for entry in standings if entry.status is not None), default=0.0)
    return max(worth, 1e-9) if standings else 0.0


def _still_holds(line: Line, node: NodeView, jobs: Sequence[JobView], changed: Sequence[str], now: float) -> bool:
    """Whether what was decided for a node need not be decided again."""
    return (
        now < line.holds_until
        and line.node is node
        and len(jobs) == len(line.ids)
        and line.ids.issuperset(map(_ID, jobs))
        and line.ids.isdisjoint(changed)
    )


def _no_news(before: JobView, job: JobView) -> bool:
    """Whether nothing that counts has changed of a job; its share does not."""
    return (
        before.cpu_seconds == job.cpu_seconds
        and before.observations is job.observations
        and before.tiers is job.tiers
        and before.node_id == job.node_id
        and before.movable is job.movable
    )


def _is_settled(line: Line, capacity: float, cores: float) -> bool:
    """Whether what the endpoints of a node leave is still about what its jobs share."""
    settled = line.capacity <= capacity <= line.capacity + _LEFT_OVER
    return settled and abs(cores - line.cores) <= _MOVES_THE_LINE * line.node.cpu_cores


def _with_objectives(
    views: Sequence[EndpointView], records: Mapping[str, EndpointRecord]
) -> dict[str, list[EndpointView]]:
    """By node, the endpoints that have an objective."""
    groups: dict[str, list[EndpointView]] = {}
    for view in views:
        if view.objective_seconds is not None and view.name in records:
            groups.setdefault(view.node_id, []).append(view)
    return groups


def _with_fronts(
    records: dict[str, JobRecord], before: frozenset[str], front: frozenset[str], now: float
) -> dict[str, JobRecord]:
    """Records that know since when their jobs have been in front."""
    for name in front - before:
        records[name] = replace(records[name], front_since=now)
    for name in before - front:
        if name in records:
            records[name] = replace(records[name], front_since=None)
    return records
