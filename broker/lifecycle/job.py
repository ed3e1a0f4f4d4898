"""The life of a job: one function per kind of input, each a pure step from a job to a job and effects.

The states and their edges are drawn in ``README.md``. Inputs that speak of an earlier run, or of what is known
already, change nothing: nodes repeat themselves after every reconnection. What a run tells is in :mod:`.job_run`, how
a job ends in :mod:`.job_end`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import job_again, job_end, job_move, job_run
from tiercel.broker.lifecycle.job_events import (
    Announce,
    Assigned,
    CancelRequested,
    DeclareRun,
    Deferred,
    DeliveryEnded,
    JobEffect,
    JobInput,
    MoveOrdered,
    NodeFenced,
    NodeGone,
    NodeSilent,
    Reported,
    Reschedule,
    ResumeRequested,
    RunExited,
    RunIsAlive,
    RunUnknown,
    ShareUpdated,
    Ticked,
    TierFeasibilityChanged,
    UsageMeasured,
)
from tiercel.broker.lifecycle.job_silence import unheard, with_share
from tiercel.broker.lifecycle.job_steps import Step, enter, request_deliveries, with_tier
from tiercel.core.errors import IllegalTransitionError
from tiercel.core.events import ShareChanged, StateChanged, TierChanged
from tiercel.core.jobs import Job, JobState, Move, TierState, TierStatus

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec
    from tiercel.core.moments import Moment
    from tiercel.core.shares import Share


def create(job_id: str, tenant: str, spec: JobSpec, now: float, idempotency_key: str = "") -> Step:
    """A job that was just accepted. ``now``: seconds since the Unix epoch."""
    job = Job(
        id=job_id,
        tenant=tenant,
        spec=spec,
        submitted_at=now,
        reason="waiting for the scheduler",
        tiers=tuple(TierStatus(number, tier) for number, tier in enumerate(spec.tiers, start=1)),
        idempotency_key=idempotency_key,
    )
    return job, (Announce(StateChanged(job.state, job.reason)), Reschedule("arrival"))


def handle(job: Job, event: JobInput, now: Moment) -> Step:  # noqa: C901 - one case for each kind of input
    """Take one step.

    Args:
        job: The job as it is.
        event: What happened.
        now: The time.

    Returns:
        The job as it is then, and what to do, in order. The same job and no effects when nothing is to change.

    Raises:
        IllegalTransitionError: The state has no edge for this input; nothing changes.
    """
    match event:
        case Assigned():
            return _assigned(job, event)
        case MoveOrdered():
            return job_move.move_ordered(job, event)
        case ShareUpdated(run_id, share):
            return _reshared(job, run_id, share, now.alive)
        case Deferred(reason):
            return _kept_waiting(job, reason)
        case TierFeasibilityChanged(reason):
            return _reach_judged(job, reason)
        case RunIsAlive():
            return job_run.run_is_alive(job, event, now)
        case RunUnknown(run_id):
            return job_run.run_unknown(job, run_id, now)
        case Reported():
            return job_run.reported(job, event, now)
        case UsageMeasured():
            return job_run.usage_measured(job, event)
        case RunExited():
            return job_end.run_exited(job, event, now)
        case NodeSilent(node_id):
            return _node_silent(job, node_id)
        case NodeFenced(node_id, fenced):
            return (replace(job, fenced=fenced) if node_id == job.node_id else job), ()
        case NodeGone(node_id):
            return job_end.node_gone(job, node_id, now)
        case DeliveryEnded():
            return job_end.delivery_ended(job, event, now)
        case CancelRequested():
            return job_end.cancel_requested(job, now)
        case ResumeRequested(max_epochs):
            return job_again.resume_requested(job, max_epochs)
        case Ticked():
            return job_run.ticked(job, now)


def resume(job: Job) -> Step:
    """What to do about a job that was loaded after the broker started again."""
    job = replace(job, silence=None, retry_at=None)  # by the clock of a life that is over
    effects: list[JobEffect] = [DeclareRun()] if job.run_active else []
    effects.extend(request_deliveries(job))
    job, more = _node_silent(job, job.node_id)
    return job, (*effects, *more)


def _assigned(job: Job, event: Assigned) -> Step:
    if event.attempt <= job.attempts or job.state.is_final:  # repeated, or it finished while the plan was being made
        return job, ()
    if job.state is not JobState.PENDING:
        raise IllegalTransitionError(f"job {job.id}", job.state.value, event)
    words = f"starting on node {event.node_id}{_from_what(job, event.node_id)}"
    job = replace(
        unheard(job),
        attempts=event.attempt,
        run_active=True,
        node_id=event.node_id,
        share=event.share,
        last_sequence=0,
        checkpoint_node="",
        fenced=False,
    )
    job, effects = enter(job, JobState.STARTING, words)
    share = Announce(ShareChanged(event.node_id, event.share))
    # What an earlier run reached and could not hand over is delivered from this one.
    return job, (*effects, share, DeclareRun(), *request_deliveries(job))


def _from_what(job: Job, node_id: str) -> str:
    """What the next run begins with, where that is not plain."""
    if job.carried_run:
        return " from the checkpoint that the broker holds"
    if job.checkpoint_node and job.checkpoint_node != node_id:
        return f" from the beginning: its checkpoint is on node {job.checkpoint_node}"
    if job.attempts and not job.checkpoint_node:
        return " from the beginning: its checkpoint is gone"
    return ""


def _reshared(job: Job, run_id: str, share: Share, alive: float) -> Step:
    if run_id != job.run_id or not job.run_active:
        return job, ()
    if job.move is not None and job.is_moving:  # the scheduler sees it where it goes
        return (job if share == job.move.share else replace(job, move=Move(job.move.node_id, share))), ()
    if share.same_limits(job.share):
        return job, ()
    return with_share(job, share, alive), (Announce(ShareChanged(job.node_id, share)), DeclareRun())


def _kept_waiting(job: Job, reason: str) -> Step:
    return enter(job, JobState.PENDING, reason) if job.state is JobState.PENDING else (job, ())


def _reach_judged(job: Job, reason: str) -> Step:
    number = next((t.number for t in job.tiers if t.state in {TierState.PENDING, TierState.UNREACHABLE}), None)
    if number is None or job.state.is_final:
        return job, ()
    tier = job.tiers[number - 1]
    judged = replace(tier, state=TierState.UNREACHABLE if reason else TierState.PENDING, reason=reason)
    # The words contain figures that change with every report; only the judgement itself is news.
    if judged.state is tier.state:
        return job, ()
    return with_tier(job, judged), (Announce(TierChanged(judged)),)


def _node_silent(job: Job, node_id: str) -> Step:
    if job.node_id != node_id or job.state not in {JobState.STARTING, JobState.RUNNING}:
        return job, ()
    return enter(job, JobState.DISCONNECTED, f"node {job.node_id} does not answer; the run may well go on there")
