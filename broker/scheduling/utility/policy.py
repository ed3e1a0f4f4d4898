"""Our own policy: CPU goes where it buys the most utility per second.

One currency prices everything. A job is worth ``value of its next tier x tenant's weight`` times the chance per CPU
second that it gets there: the Gittins index of a forecast that comes from earlier runs of the same program, from its
own curve or from what other jobs needed (:mod:`.forecast.work`). With forecasts that are sure this is shortest
remaining work first, with none it is close to least attained service, and a job that may never get there is worth
little without being given up. Tiers beyond the first are discounted, so that a first usable model comes before a
better one. What applications that ask an endpoint already have of a better version is added (:mod:`.utility.traffic`),
and being over counts a little (:mod:`.utility.worth`).

Who is worth most runs, as many at a time as there are cores, and everybody else keeps a small floor: a live trial
showed that this is where most of the gain lies, whatever the order. Around that:

* the order changes only for a clear difference (``hysteresis``);
* new jobs keep a larger floor until they have shown something (``exploration``);
* a tier out of reach loses its place in line, its tenant is told, progress brings it back (:mod:`.utility.outlook`);
* nobody is kept waiting for much longer than under equal sharing (:mod:`.utility.guard`);
* jobs that use accelerators get what they can use of both, and compete for what they are short of
  (:mod:`.utility.devices`);
* waiting jobs go where the least work is left, running ones move where a node would idle (:mod:`.utility.moves`);
* endpoints with a delay objective get what their requests need, and are only limited where they compete with each
  other (:mod:`.utility.contest`); jobs share what answers leave, and less than that while answers come late
  (:mod:`.utility.relief`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter

from tiercel.broker.scheduling.interface import Assignment, EndpointView, JobView, NodeView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.placement import Placement, jobs_by_node, place
from tiercel.broker.scheduling.rank import submission_order
from tiercel.broker.scheduling.utility.contest import serve
from tiercel.broker.scheduling.utility.devices import fair_device_cores
from tiercel.broker.scheduling.utility.guard import Account, FairClock, advanced, fair_finishes
from tiercel.broker.scheduling.utility.lines import Line, Pass, share_out
from tiercel.broker.scheduling.utility.looks import Held, look
from tiercel.broker.scheduling.utility.moves import Move, choose_move, least_work_left
from tiercel.broker.scheduling.utility.outlook import JobRecord, spent_by
from tiercel.broker.scheduling.utility.relief import NONE, Relief, capped, relieve
from tiercel.broker.scheduling.utility.serving import Answering, EndpointRecord, cores_left, observe
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.utility.traffic import Traffic, renewed, traffic_of
from tiercel.core.shares import Share

# Fewer jobs than this part that came or went since do not change what fair sharing would give to the others.
_FEW = 0.01
_NAME = attrgetter("name")
_ID = attrgetter("id")
# After these a node may have nothing to do.
_MAY_IDLE = frozenset({Trigger.EXIT, Trigger.NODE})


@dataclass(frozen=True, slots=True)
class Review:
    """What fair sharing would give.

    Attributes:
        at: When that and migrations were last looked at for no other reason than time, seconds since the Unix epoch.
        clock: The virtual cluster with equal shares.
        due: When each job must be over.
    """

    at: float = -math.inf
    clock: FairClock = field(default_factory=FairClock)
    due: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UtilityState:
    """What is remembered between passes.

    Attributes:
        held: What is held of jobs.
        endpoints: By endpoint.
        review: What fair sharing would give.
        moved_at: When the last job was sent elsewhere, seconds since the Unix epoch.
        lines: By node, what was decided there while nothing is new.
        front: Jobs that ran in front.
        relief: By node, what is kept from jobs for answers that come late.
        traffic: How endpoints are asked that jobs feed, as far as decisions went by it.
    """

    held: Held = field(default_factory=Held)
    endpoints: Mapping[str, EndpointRecord] = field(default_factory=dict)
    review: Review = field(default_factory=Review)
    moved_at: float = -math.inf
    lines: Mapping[str, Line] = field(default_factory=dict)
    front: frozenset[str] = frozenset()
    relief: Mapping[str, Relief] = field(default_factory=dict)
    traffic: Mapping[str, Traffic] = field(default_factory=dict)


@dataclass(slots=True)
class _Serving:
    """Endpoints in one pass; local to it.

    Attributes:
        records: What is held of each.
        left: Cores that answers leave, by node.
        answering: What they use.
        by_node: Those with an objective, by node.
        shares: What was decided.
        relief: What is kept from jobs, by node.
    """

    records: dict[str, EndpointRecord]
    left: Mapping[str, float]
    answering: Answering
    by_node: Mapping[str, Sequence[EndpointView]]
    shares: dict[str, Share] = field(default_factory=dict)
    relief: dict[str, Relief] = field(default_factory=dict)

    def cores_of(self, node: NodeView) -> float:
        """What answers leave of a node's cores."""
        return self.left.get(node.id, node.cpu_cores)


class UtilityPolicy:
    """Runs what is worth most per CPU second; see the module's description."""

    name: str = "utility"
    settings_type = UtilitySettings

    def __init__(self, settings: UtilitySettings | None = None) -> None:
        self.settings = settings or UtilitySettings()

    def initial_state(self) -> UtilityState:
        """Nothing is known of any job."""
        return UtilityState(review=Review(clock=FairClock(sharing_penalty=self.settings.sharing_penalty)))

    def plan(self, snapshot: Snapshot, state: UtilityState) -> tuple[Plan, UtilityState]:
        """Renew what is held of jobs, place them, and share each node by worth."""
        held, changed = look(snapshot, state.held, self.settings)
        serving = self._observe_endpoints(snapshot, state)
        placement = place(snapshot, least_work_left(held.records, serving.left, serving.answering))
        review = self._review(snapshot, state.review, held, serving.left)
        groups = jobs_by_node(snapshot, placement)
        move = self._move(snapshot, groups, held, serving, state, waited=review.at > state.review.at)
        traffic, asked_anew = renewed(state.traffic, traffic_of(snapshot.endpoints, self.settings.serving))
        this = Pass(snapshot.now, held.records, review.due, state.front, self.settings, traffic, asked_anew)
        news = _by_node(changed, placement)
        lines = {
            node.id: self._share(this, node, groups.get(node.id, []), news.get(node.id, ()), serving, state, move)
            for node in sorted(snapshot.nodes, key=_ID)
        }
        front = frozenset(chain.from_iterable(line.front for line in lines.values()))
        unreachable = {name: record.unreachable for name, record in held.records.items() if record.unreachable}
        plan = Plan(
            tuple(chain.from_iterable(_assignments(line, serving.relief.get(name)) for name, line in lines.items())),
            placement.waiting,
            dict(sorted(unreachable.items())),
            serving.shares,
        )
        held = replace(held, records=_with_fronts(dict(held.records), state.front, front, snapshot.now))
        moved_at = state.moved_at if move is None else snapshot.now
        return plan, UtilityState(held, serving.records, review, moved_at, lines, front, serving.relief, traffic)

    def _observe_endpoints(self, snapshot: Snapshot, state: UtilityState) -> _Serving:
        nodes = {node.id: node for node in snapshot.nodes}
        views = sorted(snapshot.endpoints, key=_NAME)
        records = observe(views, nodes, state.endpoints, snapshot.now, self.settings.serving)
        left = cores_left(snapshot.nodes, views, records)
        return _Serving(records, left, Answering.now(views, records), _with_objectives(views, records))

    def _review(self, snapshot: Snapshot, last: Review, held: Held, left: Mapping[str, float]) -> Review:
        """What fair sharing would give, looked at again when it is time or when jobs came or went."""
        waited = snapshot.now - last.at >= self.settings.review_seconds
        at, ratio = snapshot.now if waited else last.at, self.settings.guard_ratio
        if not ratio or not snapshot.nodes:
            return Review(at, last.clock)
        if not waited and len(held.views.keys() ^ last.due.keys()) <= _FEW * len(held.views):
            return last
        cores = {node.id: left.get(node.id, node.cpu_cores) for node in snapshot.nodes if node.cpu_cores > 0}
        fair_cores = fair_device_cores(snapshot, held.records)
        jobs = {
            job.id: Account(
                job.submitted_at,
                0.0,
                fair_cores.get(job.id, job.resources.cpu_cores),
                spent_by(job) + held.records[job.id].to_end,
            )
            for job in sorted(snapshot.jobs, key=submission_order)
        }
        clock = advanced(last.clock, snapshot.now, cores, jobs)
        finishes = fair_finishes(clock, cores)
        due = {job.id: job.submitted_at + ratio * (finishes[job.id] - job.submitted_at) for job in snapshot.jobs}
        return Review(at, clock, due)

    def _move(
        self,
        snapshot: Snapshot,
        groups: dict[str, list[JobView]],
        held: Held,
        serving: _Serving,
        state: UtilityState,
        *,
        waited: bool,
    ) -> Move | None:
        """Choose a migration if there is one worth it, and let ``groups`` have its job where it goes."""
        settings = self.settings
        if not settings.migrate or not (waited or snapshot.trigger in _MAY_IDLE):
            return None
        move = choose_move(
            snapshot, groups, held.records, serving.left, serving.answering, state.moved_at, settings.moves
        )
        if move is not None:
            groups[move.source] = [job for job in groups[move.source] if job.id != move.job.id]
            groups.setdefault(move.target, []).append(move.job)
        return move

    def _share(
        self,
        this: Pass,
        node: NodeView,
        jobs: Sequence[JobView],
        changed: Sequence[str],
        serving: _Serving,
        state: UtilityState,
        move: Move | None,
    ) -> Line:
        """Divide a node between its endpoints and its jobs, or leave it as it is where nothing is new."""
        line = before = state.lines.get(node.id)
        if line is None or not line.holds(node, jobs, changed, this.asked_anew, this.now):
            line = this.line_up(node, jobs, serving.cores_of(node), before)
        capacity = 1.0
        asked = serving.by_node.get(node.id, ())
        relief = relieve(state.relief.get(node.id, NONE), asked, line, this.now, self.settings.serving)
        if relief is not NONE:
            serving.relief[node.id] = relief
        if asked:
            worth = line.worth if len(asked) > 1 else 0.0  # one alone competes with nobody
            contest = serve(asked, node, worth, serving.records, self.settings.serving)
            serving.shares.update(contest.shares)
            serving.records.update(contest.changed)
            capacity = contest.capacity
        cores = min(serving.cores_of(node), capacity * node.cpu_cores)
        return (
            line if line.is_settled(capacity, cores) else share_out(line, before, capacity, cores, move, this.settings)
        )


def _assignments(line: Line, relief: Relief | None) -> tuple[Assignment, ...]:
    """What the jobs of a node get."""
    return capped(line, relief) if relief is not None and relief.part else line.assignments


def _by_node(changed: set[str], placement: Placement) -> dict[str, list[str]]:
    """Jobs with news by the node they are on."""
    news: dict[str, list[str]] = {}
    for name in changed:
        news.setdefault(placement.node_of.get(name, ""), []).append(name)
    return news


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
