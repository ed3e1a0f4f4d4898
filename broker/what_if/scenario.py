"""From the present, or the present with changes, to what the simulator goes on with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import Assigned, RunIsAlive
from tiercel.broker.scheduling.feasible import can_hold
from tiercel.broker.scheduling.interface import PRIOR_START_SECONDS, EndpointView, JobView, NodeView, Snapshot
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.simulation.cluster import NO_PENALTY
from tiercel.broker.simulation.curves import Family, FamilyCurve
from tiercel.broker.simulation.endpoints import EndpointTraffic
from tiercel.broker.simulation.randomness import stream
from tiercel.broker.simulation.requests import ConstantRate
from tiercel.broker.simulation.scenario import MachineSettings, Scenario
from tiercel.broker.simulation.underway import Underway
from tiercel.broker.simulation.workload import PlannedJob, Workload
from tiercel.broker.what_if.futures import Rest, future, rest_of
from tiercel.broker.what_if.present import Present
from tiercel.core.data_sets import DataSet
from tiercel.core.errors import NotFoundError
from tiercel.core.jobs import Job, JobSpec
from tiercel.core.moments import Moment
from tiercel.core.shares import Share
from tiercel.core.what_if import AddedNode, Changes

ENDPOINT_SECONDS = 60.0
"""Endpoints are asked for so long."""

# How many passes of the policy a simulation may take, more or less.
_PASSES = 60
# Nobody is helped by what will be in a month.
_HORIZON_SECONDS = 30 * 86400.0
_NO_CURVE = FamilyCurve(Family.EXPONENTIAL, 0.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class World:
    """The present as it would be.

    Attributes:
        snapshot: The jobs that some node can hold, the nodes, the endpoints.
        views: All jobs, those that fit on no node too, by id.
        policy: The policy's name.
        options: Its options.
        interval_seconds: How often it looks.
        rests: What is known of each job, by id.
    """

    snapshot: Snapshot
    views: Mapping[str, JobView]
    policy: str
    options: Mapping[str, bool | float | str]
    interval_seconds: float
    rests: Mapping[str, Rest]


def world(present: Present, changes: Changes) -> World:
    """The present with changes.

    Raises:
        NotFoundError: There is no such job, node or endpoint.
    """
    snapshot = present.snapshot
    nodes = _nodes(snapshot.nodes, changes)
    # The clock may have been set back since.
    there = [replace(job, submitted_at=min(job.submitted_at, snapshot.now)) for job in snapshot.jobs]
    jobs = _jobs(there, changes, {node.id for node in nodes})
    endpoints = _endpoints(snapshot.endpoints, changes, {node.id for node in nodes})
    held = [job for job in jobs if any(can_hold(node, job) for node in nodes)]
    samples = _samples(snapshot)
    paces = present.paces.after(present.snapshot)
    rests = {job.id: rest_of(job, snapshot.earlier_runs(job), samples, paces.beside(job.node_id)) for job in jobs}
    return World(
        replace(snapshot, jobs=tuple(held), nodes=nodes, endpoints=endpoints),
        {job.id: job for job in jobs},
        changes.policy or present.policy,
        dict(changes.policy_options) if changes.policy else present.options,
        present.interval_seconds,
        rests,
    )


def scenario(of: World, seed: int, seeds: int) -> Scenario:
    """One future of a world; that of a job depends on the seed and its id alone.

    Args:
        of: The world.
        seed: Which future, from 0.
        seeds: How many there are: each takes another part of what is possible for a job.
    """
    underway = tuple(_underway(job, of, seed, seeds) for job in of.snapshot.jobs)
    longest = sum(each.trajectory.work[-1] for each in underway) / sum(node.cpu_cores for node in of.snapshot.nodes)
    interval = max(of.interval_seconds, longest / _PASSES)
    endpoints = tuple(
        _traffic(each, of.snapshot.nodes) for each in of.snapshot.endpoints if each.requests_per_second > 0
    )
    return Scenario(
        nodes=of.snapshot.nodes,
        name="what if",
        endpoints=endpoints,
        machines=MachineSettings(colocation=NO_PENALTY, usage_seconds=interval),
        loop=LoopSettings(interval_seconds=interval, gather_seconds=interval / 4),
        duration_seconds=ENDPOINT_SECONDS if endpoints else 0.0,
        measurement_noise=0.0,
        history={**of.snapshot.history, **{job.workload: of.snapshot.earlier_runs(job) for job in of.snapshot.jobs}},
        underway=underway,
        given=of.snapshot.given,
        horizon_seconds=_HORIZON_SECONDS,
    )


def _nodes(nodes: Sequence[NodeView], changes: Changes) -> tuple[NodeView, ...]:
    by_id = {node.id: node for node in nodes}
    for gone in changes.remove_nodes:
        if by_id.pop(gone, None) is None:
            raise NotFoundError(f"there is no node {gone} online; 'tiercel nodes' lists them")
    added = [_added(each, nodes, number) for number, each in enumerate(changes.add_nodes, 1)]
    return (*by_id.values(), *added)


def _added(wanted: AddedNode, nodes: Sequence[NodeView], number: int) -> NodeView:
    like = next((node for node in nodes if node.id == wanted.like), None)
    if wanted.like and like is None:
        raise NotFoundError(f"there is no node {wanted.like} online; 'tiercel nodes' lists them")
    like = like or max(nodes, key=lambda node: node.cpu_cores, default=NodeView("", 1.0, 64 * 1024**3))
    return replace(like, id=f"new-{number}", cpu_cores=wanted.cpu_cores or like.cpu_cores)


def _jobs(jobs: Sequence[JobView], changes: Changes, nodes: set[str]) -> list[JobView]:
    by_id = {job.id: job for job in jobs}
    for job_id in (*changes.cancel, *changes.priorities, *changes.add_like):
        if job_id not in by_id:
            raise NotFoundError(f"there is no job {job_id} that waits or runs; 'tiercel ls' lists them")
    kept = [
        replace(job, priority=changes.priorities.get(job.id, job.priority))
        for job in jobs
        if job.id not in changes.cancel
    ]
    like = [_another(by_id[job_id], number) for number, job_id in enumerate(changes.add_like, 1)]
    return [job if job.node_id in nodes or not job.node_id else _uprooted(job) for job in (*kept, *like)]


def _uprooted(job: JobView) -> JobView:
    """A job whose node is gone: it goes on elsewhere from its checkpoint."""
    return replace(job, node_id="", movable=True, share=None, home="")


def _another(job: JobView, number: int) -> JobView:
    tiers = tuple(type(tier)(tier.number, tier.tier) for tier in job.tiers)
    return replace(
        _uprooted(job),
        id=f"new-{number}",
        tiers=tiers,
        observations=(),
        cpu_seconds=0.0,
        accelerator_seconds=0.0,
        started_at=None,
        endpoint=f"new-{number}",
        name=f"{job.name} (one more)",
        migrations=0,
        migrated_at=None,
    )


def _endpoints(views: Sequence[EndpointView], changes: Changes, nodes: set[str]) -> tuple[EndpointView, ...]:
    names = {view.name.partition("@")[0] for view in views}
    for name in changes.requests:
        if name not in names:
            raise NotFoundError(f"there is no endpoint {name} that answers; 'tiercel endpoints' lists them")
    factors = [changes.requests.get(view.name.partition("@")[0], 1.0) for view in views]
    return tuple(
        replace(
            view,
            requests_per_second=view.requests_per_second * factor,
            cpu_cores_used=view.cpu_cores_used * factor,
        )
        for view, factor in zip(views, factors, strict=True)
        if view.node_id in nodes
    )


def _samples(snapshot: Snapshot) -> list[float]:
    """What runs of any program took, a typical one of each program."""
    ends = ([run.curve[-1].cpu_seconds for run in runs if run.curve] for runs in snapshot.history.values())
    return [statistics.median(each) for each in ends if each and statistics.median(each) > 0]


def _traffic(view: EndpointView, nodes: Sequence[NodeView]) -> EndpointTraffic:
    cores = next(node.cpu_cores for node in nodes if node.id == view.node_id)
    return EndpointTraffic(
        name=view.name,
        work_cpu_seconds=max(view.cpu_cores_used / view.requests_per_second, 1e-5),
        rate=ConstantRate(view.requests_per_second),
        objective_seconds=view.objective_seconds,
        node_id=view.node_id,
        quality=view.quality,
        threads=max(cores, 1.0),
        tenant=view.tenant,
        tenant_weight=view.tenant_weight,
    )


def _underway(view: JobView, of: World, seed: int, seeds: int) -> Underway:
    known = of.rests[view.id]
    startup = _startup(view, of.snapshot)
    order = stream(0, "future", view.id).sample(range(seeds), seeds)
    trajectory = future(view, known, (order[seed] + 0.5) / seeds, startup)
    workload = Workload(
        name=view.workload or view.id,
        curve=_NO_CURVE,
        tiers=tuple(tier.tier for tier in view.tiers),
        direction=view.direction,
        startup_cpu_seconds=startup,
        max_epochs=max(view.max_epochs, 1),
        continue_after_last_tier=view.continues,
        resources=view.resources,
        accelerator_intensity=view.accelerator_seconds / view.cpu_seconds
        if view.resources.accelerators and view.cpu_seconds > 0
        else 0.0,
    )
    now = of.snapshot.now
    return Underway(
        PlannedJob(
            view.submitted_at - now,
            workload,
            view.name,
            view.tenant,
            view.tenant_weight,
            view.endpoint,
            view.priority_class,
        ),
        _job(view, now, len(trajectory.work)),
        trajectory,
        tuple(replace(each, at=each.at - now) for each in view.observations),
        known.spent,
        view.observations[-1].epoch if view.observations else 0,
        view.home,
    )


def _startup(view: JobView, snapshot: Snapshot) -> float:
    """CPU seconds of a start, and no more than it took this job, or earlier runs, to their first report."""
    cost = snapshot.restarts.get(view.workload)
    measured = cost.start_cpu_seconds if cost is not None else None
    firsts = [run.curve[0].cpu_seconds for run in snapshot.earlier_runs(view) if run.curve]
    firsts += [each.cpu_seconds for each in view.observations[:1] if math.isfinite(each.cpu_seconds)]
    return min([PRIOR_START_SECONDS if measured is None else measured, *firsts])


def _job(view: JobView, now: float, reports: int) -> Job:
    """The job as its machine would have it, with the times of its past before second 0."""
    epoch = view.observations[-1].epoch if view.observations else 0
    spec = JobSpec(
        name=view.name or view.id,
        endpoint=view.endpoint or view.id,
        metric="metric",
        direction=view.direction,
        tiers=tuple(tier.tier for tier in view.tiers),
        module="what_if",
        image=view.image,
        runtime=view.runtime,
        resources=view.resources,
        max_epochs=max(view.max_epochs, epoch + reports, 1),
        report_timeout_seconds=1e9,
        continue_after_last_tier=view.continues,
        data=tuple(DataSet(name) for name in sorted(view.data)),
        node_labels=dict(view.node_labels),
        variant=view.variant,
        priority=view.priority,
    )
    job, _ = machine.create(view.id, view.tenant, spec, view.submitted_at - now)
    if view.node_id and not view.movable:
        at = Moment.of_one_clock(0.0)
        share = view.share or Share(1.0, reason="as it was")
        job, _ = machine.handle(job, Assigned(view.node_id, share, 1), at)
        job, _ = machine.handle(job, RunIsAlive(job.run_id), at)
    started = None if view.started_at is None else view.started_at - now
    return replace(job, tiers=view.tiers, started_at=started)
