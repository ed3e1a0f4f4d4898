"""When the scheduler runs next: at once on events, else on an interval with exponential back-off.

The pure part. Whoever owns the loop keeps a :class:`LoopState`, sleeps until :attr:`LoopState.next_at` or an event,
asks :func:`due_trigger`, plans, and notes the run with :func:`ran`. FlowCon doubles its interval without bound (papers
§1.3); here it is bounded. A policy with a rhythm of its own says when it wants to run next (:attr:`.Plan.next_at`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import Assignment, Plan, Snapshot, Trigger

_STRENGTH = {trigger: rank for rank, trigger in enumerate(Trigger)}


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How often the scheduler runs.

    Attributes:
        interval_seconds: Seconds between two runs while nothing happens, > 0.
        max_factor: The interval grows to at most so many times its base, >= 1.
        gather_seconds: Seconds to wait after an event for others that come with it, >= 0.
    """

    interval_seconds: float = 2.0
    max_factor: int = 16
    gather_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LoopState:
    """Where the loop is.

    Attributes:
        next_at: When to run next, on the same clock as all ``now`` here.
        factor: How many base intervals lie between two runs at present.
        pending: The strongest event that has not been answered by a run, or None.
    """

    next_at: float
    factor: int = 1
    pending: Trigger | None = None


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
    """The assignments worth carrying out.

    All of a node's or none: as soon as one of its jobs is new or moves by more than ``tolerance`` of weight, every
    share of the node that differs at all is renewed, so that the weights still fit together.
    """
    jobs = {job.id: job for job in snapshot.jobs}

    def differs(assignment: Assignment, margin: float) -> bool:
        job = jobs[assignment.job_id]
        return job.node_id != assignment.node_id or not assignment.share.same_limits(job.share, tolerance=margin)

    stirred = {assignment.node_id for assignment in plan.assignments if differs(assignment, tolerance)}
    return tuple(
        assignment for assignment in plan.assignments if assignment.node_id in stirred and differs(assignment, 0.0)
    )
