"""Our own policy: every core goes where it buys the most utility per second. docs/policies.md has the objective.

Who is worth most runs, as many at a time as there are cores, and everybody else keeps a small floor: a live trial
showed that this is where most of the gain lies, whatever the order. One index says who (:mod:`.utility.candidate`),
from what is held of each job (:mod:`.utility.record`); one constraint who goes first all the same
(:mod:`.utility.fairness`); one rule where (:mod:`.utility.migration`). Endpoints with a delay objective compete for the
same cores by the same value (:mod:`.utility.serving`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from tiercel.broker.scheduling.forecast.pace import Speeds
from tiercel.broker.scheduling.interface import Assignment, EndpointView, Plan, Snapshot
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.broker.scheduling.utility.fairness import Review, reviewed
from tiercel.broker.scheduling.utility.migration import Load, Migration, choose_migration, soonest_done
from tiercel.broker.scheduling.utility.queue import Pass, Queue
from tiercel.broker.scheduling.utility.record import Held, renew
from tiercel.broker.scheduling.utility.serving import EndpointRecord, cores_left, in_steps, limits, observe, traffic_of
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.shares import Share


@dataclass(frozen=True, slots=True)
class UtilityState:
    """What is remembered between passes."""

    held: Held = field(default_factory=Held)  # what is held of jobs
    endpoints: Mapping[str, EndpointRecord] = field(default_factory=dict)  # by endpoint
    review: Review = field(default_factory=Review)  # what fair sharing would give
    queues: Mapping[str, Queue] = field(default_factory=dict)  # what was decided of jobs, by node
    speeds: Speeds = field(default_factory=Speeds)  # how fast nodes are


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
        """Renew what is held of jobs and endpoints, place jobs, and share each node by worth."""
        nodes = sorted(snapshot.nodes, key=attrgetter("id"))
        views: dict[str, list[EndpointView]] = {node.id: [] for node in nodes}
        for view in sorted(snapshot.endpoints, key=attrgetter("name")):
            views.get(view.node_id, []).append(view)
        held = renew(snapshot, state.held, state.speeds)
        before = state.held.records
        news = [
            (before[name].job if name in before else None, record.job)
            for name, record in held.records.items()
            if record is not before.get(name)
        ]
        speeds = state.speeds.after(sorted(news, key=lambda pair: pair[1].id), views)
        endpoints: dict[str, EndpointRecord] = {}
        for node in nodes:
            endpoints |= observe(views[node.id], node, state.endpoints)
        left = {node.id: cores_left(node, views[node.id]) for node in nodes}
        review = reviewed(state.review, snapshot, held.records, left, self.settings.guard_ratio)
        traffic = traffic_of(snapshot.endpoints, self.settings)
        this = Pass(snapshot.now, held.records, traffic, review.due, snapshot.given, self.settings)

        cores = math.fsum(node.cpu_cores for node in nodes) or 1.0
        used = {view.name: max(view.cpu_cores_used, 0.0) for there in views.values() for view in there}
        well = self.settings.answers_well
        loads = [Load(node, max(left[node.id], 1e-9), speeds, well, used) for node in nodes]
        for load in loads:
            for view in views[load.node.id]:
                load.answer(view.name)
        placement = place(snapshot, soonest_done(loads, held.records), lambda jobs: this.line(jobs, cores))
        groups = jobs_by_node(snapshot, placement)
        migration = None
        if review.at > state.review.at:
            migration = choose_migration(snapshot, groups, held.records, loads, placement.kept)
        if migration is not None:
            groups[migration.job.node_id].remove(migration.job)
            groups.setdefault(migration.target, []).append(migration.job)

        queues, shares = dict[str, Queue](), dict[str, Share]()
        for node in nodes:
            queue = this.rank(node, groups.get(node.id, ()), left[node.id], state.queues.get(node.id))
            limited = limits(views[node.id], node, queue.priority * self.settings.answers_per_value, endpoints)
            capacity = in_steps(1.0 - math.fsum(share.cpu_weight for share in limited.values()))
            queues[node.id] = queue.shared_out(capacity, self.settings.floor)
            shares |= limited
        plan = Plan(
            tuple(_told(each, migration) for queue in queues.values() for each in queue.assignments),
            placement.waiting,
            {name: record.unreachable for name, record in sorted(held.records.items()) if record.unreachable},
            shares,
        )
        return plan, UtilityState(held, endpoints, review, queues, speeds)


def _told(given: Assignment, migration: Migration | None) -> Assignment:
    """What a job gets; one that comes from another node is told why."""
    if migration is None or given.job_id != migration.job.id:
        return given
    return replace(given, share=replace(given.share, reason=f"{migration.reason}; {given.share.reason}"))
