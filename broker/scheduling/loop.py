"""When the scheduler runs next: at once on events, else on an interval with exponential back-off.

The pure part. Whoever owns the loop keeps a :class:`LoopState`, sleeps until :attr:`LoopState.next_at` or an event,
asks :func:`due_trigger`, plans, and notes the run with :func:`ran`. FlowCon doubles its interval without bound
(Zheng et al., 2019); here it is bounded. A policy with a rhythm of its own says when it wants to run next
(:attr:`.Plan.next_at`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot, Trigger
from tiercel.core.jobs import TierState
from tiercel.core.shares import LEAST_SPEED, Share

_STRENGTH = {trigger: rank for rank, trigger in enumerate(Trigger)}


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How often the scheduler runs."""

    interval_seconds: float = 2.0  # seconds between two runs while nothing happens, > 0
    max_factor: int = 16  # the interval grows to at most so many times its base, >= 1
    gather_seconds: float = 0.0  # seconds to wait after an event for others that come with it, >= 0


@dataclass(frozen=True, slots=True)
class LoopState:
    """Where the loop is."""

    next_at: float  # when to run next, on the same clock as all ``now`` here
    factor: int = 1  # how many base intervals lie between two runs at present
    pending: Trigger | None = None  # the strongest event that has not been answered by a run, or None


def start(settings: LoopSettings, now: float) -> LoopState:
    """A loop that first runs after one interval."""
    return LoopState(next_at=now + settings.interval_seconds)


def strongest(first: Trigger | None, second: Trigger | None) -> Trigger | None:
    """The stronger of two triggers: the one that :class:`Trigger` lists first."""
    present = [trigger for trigger in (first, second) if trigger is not None]
    return min(present, key=_STRENGTH.__getitem__, default=None)


def triggered(state: LoopState, trigger: Trigger, settings: LoopSettings, now: float) -> LoopState:
    """Note an event: run soon, and let the interval start over."""
    soon = min(state.next_at, now + settings.gather_seconds)
    return LoopState(next_at=soon, factor=1, pending=strongest(state.pending, trigger))


def due_trigger(state: LoopState, now: float) -> Trigger | None:
    """What to run for now; None when it is not time yet."""
    if now < state.next_at:
        return None
    return state.pending or Trigger.INTERVAL


def ran(
    state: LoopState,
    trigger: Trigger,
    settings: LoopSettings,
    now: float,
    *,
    changed: bool,
    next_at: float | None = None,
) -> LoopState:
    """Note a run that answered ``trigger``.

    Args:
        state: The loop before the run.
        trigger: What :func:`due_trigger` said.
        settings: How often to run.
        now: When the run was done.
        changed: Whether it changed anything; see :func:`changed_assignments`.
        next_at: When the policy itself wants to run next, or None. It is not asked more often than ten times an
            interval, and not less often than the back-off allows, so that news which got lost are told again.
    """
    idle = trigger is Trigger.INTERVAL and not changed
    factor = min(2 * state.factor, settings.max_factor) if idle else 1
    wait = factor * settings.interval_seconds
    if next_at is not None:
        shortest, longest = settings.interval_seconds / 10, settings.interval_seconds * settings.max_factor
        wait = min(max(next_at - now, shortest), longest)
    return replace(state, next_at=now + wait, factor=factor, pending=None)


def changed_assignments(plan: Plan, snapshot: Snapshot, *, tolerance: float = 0.02) -> tuple[Assignment, ...]:
    """The assignments worth carrying out, with the speed that each share gives its job.

    All of a node's or none: as soon as one of its jobs is new or moves by more than ``tolerance``, every share of the
    node that differs at all is renewed, so that the weights still fit together.

    Args:
        plan: What the policy wants.
        snapshot: What it was made of.
        tolerance: A part of a job's full speed, and of its accelerators. No part of the node: on one of 64 cores, all
            that makes a job of one core wait or run is a 64th of it.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    nodes = {node.id: node for node in snapshot.nodes}
    differing = [entry for entry in plan.assignments if not _is_as_before(entry, jobs[entry.job_id])]
    stirred = {
        entry.node_id for entry in differing if _moves(entry, jobs[entry.job_id], nodes[entry.node_id], tolerance)
    }
    return tuple(
        replace(entry, share=_with_speed(entry.share, jobs[entry.job_id], nodes[entry.node_id]))
        for entry in differing
        if entry.node_id in stirred
    )


def changed_verdicts(plan: Plan, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Jobs of whose next tier something else is held than before: each with why it is out of reach, or empty."""
    for job in snapshot.jobs:
        reason = plan.unreachable.get(job.id, "")
        if bool(reason) != any(tier.state is TierState.UNREACHABLE for tier in job.tiers):
            yield job.id, reason


def _is_as_before(entry: Assignment, job: JobView) -> bool:
    return job.node_id == entry.node_id and entry.share.same_limits(job.share)


def _moves(entry: Assignment, job: JobView, node: NodeView, tolerance: float) -> bool:
    """Whether a job goes elsewhere, or at another speed."""
    if job.node_id != entry.node_id:
        return True
    weight = tolerance / _speed_of_whole_node(job, node)
    return not entry.share.same_limits(job.share, tolerance=weight, accelerator_tolerance=tolerance)


def _speed_of_whole_node(job: JobView, node: NodeView) -> float:
    """How many times as fast as it can go a job would be with all of a node's weight, if more cores made it faster."""
    return node.cpu_cores / min(job.resources.cpu_cores, node.cpu_cores)


def _with_speed(share: Share, job: JobView, node: NodeView) -> Share:
    """The share with the part of its full speed that the job has at least, by what it gets least of."""
    parts = [share.cpu_weight * _speed_of_whole_node(job, node)]
    if share.cpu_cap_cores is not None:
        parts.append(share.cpu_cap_cores / min(job.resources.cpu_cores, node.cpu_cores))
    parts += [accelerator.fraction for accelerator in share.accelerators]
    return replace(share, speed=max(min(*parts, 1.0), LEAST_SPEED))
