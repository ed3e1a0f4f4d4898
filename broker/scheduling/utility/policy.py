"""Our own policy: CPU goes where it buys the most utility per second.

One currency prices everything. A job is worth ``value of its next tier x tenant's weight`` times the chance per CPU
second that it gets there: the Gittins index of a forecast that comes from earlier runs of the same program, from its
own curve or from what other jobs needed (:mod:`.forecast.work`). With forecasts that are sure this is shortest
remaining work first, with none it is close to least attained service, and a job that may never get there is worth
little without being given up. Tiers beyond the first are discounted, so that a first usable model comes before a
better one. What applications that ask an endpoint already have of a better version is added (:mod:`.utility.traffic`),
and being over counts a little (:mod:`.utility.candidate`).

Who is worth most runs, as many at a time as there are cores, and everybody else keeps a small floor: a live trial
showed that this is where most of the gain lies, whatever the order. Around that:

* a tier out of reach loses its position, its tenant is told, progress brings it back (:mod:`.forecast.reach`);
* nobody is kept waiting for much longer than under equal sharing (:mod:`.utility.fairness`);
* jobs that use accelerators get what they can use of both, and compete for what they are short of
  (:mod:`.utility.accelerators`);
* waiting jobs go where the least work is left, running ones move where a node would idle (:mod:`.utility.migration`);
* endpoints with a delay objective get what their requests need, and are only limited where they compete with each
  other (:mod:`.utility.arbitration`); jobs share what answers leave, and less than that while answers come late
  (:mod:`.utility.backpressure`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from tiercel.broker.scheduling.forecast.pace import Speeds
from tiercel.broker.scheduling.interface import Assignment, EndpointView, JobView, NodeView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.placement import Placement, jobs_by_node, place
from tiercel.broker.scheduling.rank import by_submission
from tiercel.broker.scheduling.utility.accelerators import fair_accelerator_cores
from tiercel.broker.scheduling.utility.arbitration import arbitrate
from tiercel.broker.scheduling.utility.backpressure import NONE, Backpressure, backpressure_after, capped
from tiercel.broker.scheduling.utility.fairness import Account, FairClock, Place, advanced, fair_finishes
from tiercel.broker.scheduling.utility.migration import Migration, choose_migration, least_work_left
from tiercel.broker.scheduling.utility.queue import Pass, Queue
from tiercel.broker.scheduling.utility.record import Held, renew
from tiercel.broker.scheduling.utility.serving import Answering, EndpointRecord, cores_left, observe
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.utility.traffic import Traffic, renewed, traffic_of
from tiercel.core.shares import Share

# Fair shares and migrations are looked at when jobs come or go, else this often.
_REVIEW_SECONDS = 5.0
# Fewer jobs than this part that came or went since do not change what fair sharing would give to the others.
_FEW = 0.01
_NAME = attrgetter("name")
_ID = attrgetter("id")
# After these a node may have nothing to do.
_MAY_IDLE = frozenset({Trigger.EXIT, Trigger.NODE})


@dataclass(frozen=True, slots=True)
class Review:
    """What fair sharing would give."""

    # When that and migrations were last looked at for no other reason than time, seconds since the Unix epoch.
    at: float = -math.inf
    clock: FairClock = field(default_factory=FairClock)  # the virtual cluster with equal shares
    due: Mapping[str, float] = field(default_factory=dict)  # when each job must be over


@dataclass(frozen=True, slots=True)
class UtilityState:
    """What is remembered between passes."""

    held: Held = field(default_factory=Held)  # what is held of jobs
    endpoints: Mapping[str, EndpointRecord] = field(default_factory=dict)  # by endpoint
    review: Review = field(default_factory=Review)  # what fair sharing would give
    queues: Mapping[str, Queue] = field(default_factory=dict)  # by node, what was decided there while nothing is new
    # By node, what is kept from jobs for answers that come late.
    backpressure: Mapping[str, Backpressure] = field(default_factory=dict)
    # How endpoints are asked that jobs feed, as far as decisions went by it.
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    speeds: Speeds = field(default_factory=Speeds)  # how fast nodes are


@dataclass(slots=True)
class _Serving:
    """Endpoints in one pass; local to it."""

    records: dict[str, EndpointRecord]
    left: Mapping[str, float]  # cores that answers leave, by node
    answering: Answering
    by_node: Mapping[str, Sequence[EndpointView]]  # those with an objective
    shares: dict[str, Share] = field(default_factory=dict)
    backpressure: dict[str, Backpressure] = field(default_factory=dict)  # by node

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
        return UtilityState()

    def plan(self, snapshot: Snapshot, state: UtilityState) -> tuple[Plan, UtilityState]:
        """Renew what is held of jobs, place them, and share each node by worth."""
        held, changed = renew(snapshot, state.held, state.speeds)
        news = [(state.held.views.get(name), held.views[name]) for name in sorted(changed)]
        speeds = state.speeds.after(news, (node.id for node in snapshot.nodes))
        serving = self._observe_endpoints(snapshot, state)
        review = self._review(snapshot, state.review, held, serving.left)
        traffic, asked_anew = renewed(state.traffic, traffic_of(snapshot.endpoints, self.settings))
        this = Pass(snapshot.now, held.records, review.due, self.settings, traffic, asked_anew)
        cores = math.fsum(node.cpu_cores for node in snapshot.nodes) or 1.0
        placement = place(
            snapshot,
            least_work_left(held.records, serving.left, serving.answering, speeds),
            lambda jobs: this.line(jobs, cores),
        )
        groups = jobs_by_node(snapshot, placement)
        migration = self._migrate(
            snapshot, groups, held, serving, speeds, placement.kept, waited=review.at > state.review.at
        )
        changed_on = _by_node(changed, placement)
        queues = {
            node.id: self._share(
                this, node, groups.get(node.id, []), changed_on.get(node.id, ()), serving, state, migration
            )
            for node in sorted(snapshot.nodes, key=_ID)
        }
        unreachable = {name: record.unreachable for name, record in held.records.items() if record.unreachable}
        assignments = [_assignments(queue, serving.backpressure.get(name)) for name, queue in queues.items()]
        plan = Plan(
            tuple(chain.from_iterable(assignments)),
            placement.waiting,
            dict(sorted(unreachable.items())),
            serving.shares,
        )
        return plan, UtilityState(held, serving.records, review, queues, serving.backpressure, traffic, speeds)

    def _observe_endpoints(self, snapshot: Snapshot, state: UtilityState) -> _Serving:
        nodes = {node.id: node for node in snapshot.nodes}
        views = sorted(snapshot.endpoints, key=_NAME)
        records = observe(views, nodes, state.endpoints, snapshot.now)
        left = cores_left(snapshot.nodes, views, records)
        return _Serving(records, left, Answering.now(views, records), _with_objectives(views, records))

    def _review(self, snapshot: Snapshot, last: Review, held: Held, left: Mapping[str, float]) -> Review:
        """What fair sharing would give, looked at again when it is time or when jobs came or went."""
        waited = snapshot.now - last.at >= _REVIEW_SECONDS
        at, ratio = snapshot.now if waited else last.at, self.settings.guard_ratio
        if not ratio or not snapshot.nodes:
            return Review(at, last.clock)
        if not waited and len(held.views.keys() ^ last.due.keys()) <= _FEW * len(held.views):
            return last
        places = {
            node.id: Place(left.get(node.id, node.cpu_cores), node.memory_bytes)
            for node in snapshot.nodes
            if node.cpu_cores > 0
        }
        fair_cores = fair_accelerator_cores(snapshot, held.records)
        jobs = {
            job.id: Account(
                job.submitted_at,
                fair_cores.get(job.id, job.resources.cpu_cores),
                held.records[job.id].spent + held.records[job.id].to_end,
                job.resources.memory_bytes,
            )
            for job in by_submission(snapshot.jobs)
        }
        clock = advanced(last.clock, snapshot.now, places, jobs)
        finishes = fair_finishes(clock, places)
        due = {
            job.id: job.submitted_at + ratio * (finishes[job.id] - job.submitted_at)
            for job in snapshot.jobs
            if job.id in finishes
        }
        return Review(at, clock, due)

    def _migrate(
        self,
        snapshot: Snapshot,
        groups: dict[str, list[JobView]],
        held: Held,
        serving: _Serving,
        speeds: Speeds,
        kept: Mapping[str, JobView],
        *,
        waited: bool,
    ) -> Migration | None:
        """Choose a migration if there is one worth it, and let ``groups`` have its job where it goes."""
        if not self.settings.migrate or not (waited or snapshot.trigger in _MAY_IDLE):
            return None
        migration = choose_migration(snapshot, groups, held.records, serving.left, serving.answering, speeds, kept)
        if migration is not None:
            groups[migration.source] = [job for job in groups[migration.source] if job.id != migration.job.id]
            groups.setdefault(migration.target, []).append(migration.job)
        return migration

    def _share(
        self,
        this: Pass,
        node: NodeView,
        jobs: Sequence[JobView],
        changed: Sequence[str],
        serving: _Serving,
        state: UtilityState,
        migration: Migration | None,
    ) -> Queue:
        """Divide a node between its endpoints and its jobs, or leave it as it is where nothing is new."""
        queue = state.queues.get(node.id)
        if queue is None or not queue.holds(node, jobs, changed, this.asked_anew, this.now):
            queue = this.rank(node, jobs, serving.cores_of(node))
        capacity = 1.0
        asked = serving.by_node.get(node.id, ())
        backpressure = backpressure_after(state.backpressure.get(node.id, NONE), asked, queue, this.now, self.settings)
        if backpressure is not NONE:
            serving.backpressure[node.id] = backpressure
        if asked:
            priority = queue.priority if len(asked) > 1 else 0.0  # one alone competes with nobody
            arbitration = arbitrate(asked, node, priority, serving.records, self.settings)
            serving.shares.update(arbitration.shares)
            serving.records.update(arbitration.changed)
            capacity = arbitration.capacity
        cores = min(serving.cores_of(node), capacity * node.cpu_cores)
        if queue.is_settled(capacity, cores):
            return queue
        told_first = {migration.job.id: migration.reason} if migration is not None else {}
        return queue.shared_out(capacity, cores, told_first, self.settings.floor)


def _assignments(queue: Queue, backpressure: Backpressure | None) -> tuple[Assignment, ...]:
    """What the jobs of a node get."""
    return capped(queue, backpressure) if backpressure is not None and backpressure.part else queue.assignments


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
