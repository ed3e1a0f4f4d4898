"""The life of a job, as pure steps: placed, waiting, given another try, asked to stop, and ended.

The states and their edges are drawn in ``README.md``. Inputs that speak of an earlier run, or of what is known already,
change nothing: nodes repeat themselves after every reconnection. What happens to the run that a job has is in
:mod:`.run`, what becomes of its tiers in :mod:`.delivery`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.duration import over_words
from tiercel.broker.lifecycle.job_events import Announce, DeclareRun, JobEffect, Reschedule, WithdrawRun
from tiercel.broker.lifecycle.steps import (
    Step,
    abandon_deliveries,
    delivering,
    enter,
    request_deliveries,
    with_run_over,
)
from tiercel.core.backoff import Backoff
from tiercel.core.errors import IllegalTransitionError
from tiercel.core.events import PriorityChanged, ShareChanged, StateChanged
from tiercel.core.figures import compared, number
from tiercel.core.jobs import Job, JobState, TierState, TierStatus
from tiercel.core.runs import Run

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import Assigned
    from tiercel.core.jobs import JobSpec
    from tiercel.core.moments import Moment
    from tiercel.core.retraining import Retrains

# Pauses before a script that failed is started again: by default, and the longest of those that a spec asks for.
BACKOFF = Backoff(first_seconds=1.0, longest_seconds=60.0)
LONGEST_BACK_OFF_SECONDS = 3600.0


_WAITS_FOR_THE_SCHEDULER = "waiting for the scheduler"


def create(
    job_id: str,
    tenant: str,
    spec: JobSpec,
    now: float,
    idempotency_key: str = "",
    *,
    queued: int = 0,
    reason: str = "",
    warm_node: str = "",
    retrains: Retrains | None = None,
) -> Step:
    """A job that was just accepted.

    Args:
        job_id: Its id.
        tenant: Its owner.
        spec: What is asked for.
        now: Seconds since the Unix epoch.
        idempotency_key: The client's key, or empty.
        queued: Its number in the queue for its endpoint, or 0.
        reason: What it waits for there.
        warm_node: Node that has the checkpoint of the job that it starts from, or empty.
        retrains: What makes it a retraining, or None.
    """
    job = Job(
        id=job_id,
        tenant=tenant,
        spec=spec,
        submitted_at=now,
        reason=reason or _WAITS_FOR_THE_SCHEDULER,
        queued=queued,
        warm_node=warm_node,
        retrains=retrains,
        tiers=tuple(TierStatus(number, tier) for number, tier in enumerate(spec.tiers, start=1)),
        idempotency_key=idempotency_key,
    )
    return job, (Announce(StateChanged(job.state, job.reason)), Reschedule("arrival"))


# --- It waits and is placed -------------------------------------------------------------------------------------------


def assigned(job: Job, event: Assigned, alive: float) -> Step:
    """The scheduler placed it: its next run begins."""
    if event.attempt <= job.attempts or job.state.is_final:  # repeated, or it finished while the plan was being made
        return job, ()
    if job.state is JobState.SUSPENDED:  # meanwhile
        return job, ()
    if job.state is not JobState.PENDING:
        raise IllegalTransitionError(f"job {job.id}", job.state.value, event)
    if not job.carried_run and job.copy is not None and (job.prefers_copy or event.node_id != job.checkpoint_node):
        job = replace(job, carried_run=job.copy.run_id)
    words = f"starting on node {event.node_id}{_from_what(job, event.node_id)}"
    run = Run(job.id, event.attempt, event.node_id, event.share, ordered_at=alive)
    job, effects = enter(
        replace(job, run=run, checkpoint_node="", queued=0, starts_at=None, preempted=""), JobState.STARTING, words
    )
    share = Announce(ShareChanged(event.node_id, event.share))
    # What an earlier run reached and could not hand over is delivered from this one.
    return job, (*effects, share, DeclareRun(), *request_deliveries(job))


def _from_what(job: Job, node_id: str) -> str:
    """What the next run begins with, where that is not plain."""
    if job.carried_run:
        return " from the checkpoint that the broker holds"
    if job.starts_warm:
        return f" with the weights of job {job.spec.warm_start}"
    if job.checkpoint_node and job.checkpoint_node != node_id:
        return f" from the beginning: its checkpoint is on node {job.checkpoint_node}"
    if job.attempts and not job.checkpoint_node:
        return " from the beginning: its checkpoint is gone"
    return ""


def turn_came(job: Job) -> Step:
    """Nobody feeds the endpoint any more that it is queued for, and its time has come if it has one."""
    if not job.queued or job.state not in {JobState.PENDING, JobState.SUSPENDED}:
        return job, ()
    job = replace(job, queued=0, starts_at=None)
    if job.suspended:  # it has its place, and waits for its tenant
        return job, ()
    job, effects = enter(job, JobState.PENDING, _WAITS_FOR_THE_SCHEDULER)
    return job, (*effects, Reschedule("arrival"))


def deferred(job: Job, reason: str) -> Step:
    """The scheduler could not place it, or it is not its turn yet."""
    if job.state is not JobState.PENDING:
        return job, ()
    return enter(job, JobState.PENDING, f"{job.preempted}; {reason}" if job.preempted else reason)


def priority_set(job: Job, priority: int) -> Step:
    """The tenant gives it another priority among its own."""
    if job.state.is_final or job.spec.priority == priority:
        return job, ()
    job = replace(job, spec=replace(job.spec, priority=priority))
    return job, (Announce(PriorityChanged(priority)), Reschedule("arrival"))


# --- It gets another try ----------------------------------------------------------------------------------------------


def wait_again(job: Job, words: str, *, checkpoint_node: str) -> Step:
    """Let a job whose run is gone wait for its next one, and what it had reached for that as well.

    Args:
        job: The job.
        words: Why it waits.
        checkpoint_node: Node that has its newest checkpoint, or empty if that is gone.
    """
    job = replace(
        job,
        run=None,
        earlier=job.earlier.including(job.run) if job.run is not None else job.earlier,
        stop_outcome=None,
        stop_reason="",
        # What the broker holds serves on every node; what a node holds serves there.
        checkpoint_node="" if job.carried_run else checkpoint_node,
    )
    if job.suspended:
        job, entered = enter(replace(job, retry_at=None), JobState.SUSPENDED, f"suspended by its tenant: {words}")
    else:
        job, entered = enter(job, JobState.PENDING, words)
    # Their node cannot carry them out any more; the next one will.
    effects: list[JobEffect] = [*entered, *request_deliveries(job), Reschedule("exit")]
    return job, effects


def retry(job: Job, how: str, now: Moment) -> Step:
    """Let a job whose script failed wait a while and then start again."""
    number = job.retries + 1
    pause = _backoff(job.spec).seconds(number)
    job = replace(job, retries=number, retry_at=now.alive + pause)
    words = f"{how}; it starts again from its last checkpoint in {pause:g} s, retry {number} of {job.spec.retries}"
    return wait_again(job, words, checkpoint_node=job.node_id)


def _backoff(spec: JobSpec) -> Backoff:
    first = spec.retry_back_off_seconds
    return BACKOFF if first is None else Backoff(first, max(first, LONGEST_BACK_OFF_SECONDS))


def pause_ticked(job: Job, now: Moment) -> Step:
    """Time passed: the pause before another try may be over."""
    if job.retry_at is None or now.alive < job.retry_at:
        return job, ()
    return replace(job, retry_at=None), (Reschedule("arrival"),)


def begin_again(job: Job, max_epochs: int) -> Step:
    """Let a job go on that ended without all of its tiers.

    What was delivered stays. What could not be delivered is open again.

    Args:
        job: The job.
        max_epochs: Epochs that it may train, those of earlier runs counted; 0 for as many as before.
    """
    job = replace(
        job,
        spec=replace(job.spec, max_epochs=max_epochs or job.spec.max_epochs),
        tiers=tuple(map(_open_again, job.tiers)),
        earlier=replace(job.earlier, lost=0, lost_at=()),
        finished_at=None,
        log_tail="",
        suspended=False,
        retries=0,
        queued=0,
        starts_at=None,
        # What the broker held of it went when it ended.
        carried_run="",
        copy=None,
        awaits_copy=False,
        prefers_copy=False,
        stored=None,
        store_problem="",
    )
    job, effects = wait_again(job, "resumed by its tenant", checkpoint_node=job.checkpoint_node or job.node_id)
    return replace(job, earlier=replace(job.earlier, seconds=0.0)), effects


def _open_again(tier: TierStatus) -> TierStatus:
    if tier.state is not TierState.FAILED:
        return tier
    return TierStatus(tier.number, tier.tier, failed_deliveries=tier.failed_deliveries + 1)


# --- It is asked to stop, and ends ------------------------------------------------------------------------------------


def cancel_requested(job: Job, now: Moment) -> Step:
    """The tenant wants it to stop."""
    if job.state.is_final:
        return job, ()
    if not job.run_active or job.state is JobState.DISCONNECTED:
        words = "cancelled; its node will stop it when it answers again" if job.run_active else "cancelled"
        effects: list[JobEffect] = [WithdrawRun(job.node_id, job.run_id)] if job.node_id else []
        if job.run is None or job.run.is_leaving:  # what it had reached is with no node, or waits for another run
            effects.extend(abandon_deliveries(job, words))
        job = with_run_over(job)
        job = replace(job, stop_outcome=JobState.CANCELLED, stop_reason=words, finished_at=now.at)
        job, more = enter(job, JobState.CANCELLED, words)
        return job, (*effects, *more, Reschedule("exit"))
    if job.stop_outcome is not None:  # it is ending already, and how it ends says more
        return job, ()
    return stop_running(job, JobState.CANCELLED, "cancelled")


def fail_running(job: Job, reason: str) -> Step:
    """Stop the run since something is wrong with the job; the first reason to stop is the one that counts."""
    if job.stop_outcome is not None:
        return job, ()
    return stop_running(job, JobState.FAILED, reason)


def stop_running(job: Job, outcome: JobState, reason: str) -> Step:
    """Have the run stopped; once it is gone the job has this outcome."""
    job = replace(job, stop_outcome=outcome, stop_reason=reason)
    if job.state is JobState.DISCONNECTED:  # the node will hear of it when it answers again
        return job, (DeclareRun(),)
    job, effects = enter(job, JobState.STOPPING, reason)
    return job, (*effects, DeclareRun())


def settle(job: Job, outcome: JobState, reason: str, now: Moment) -> Step:
    """Give a job without a run an outcome, and reach it if nothing is under way."""
    return finish_when_settled(replace(job, stop_outcome=outcome, stop_reason=reason), now)


def finish_when_settled(job: Job, now: Moment) -> Step:
    """Reach the final state once the run is gone and no delivery is under way."""
    if job.stop_outcome is None:
        return job, ()
    if job.stop_outcome is JobState.COMPLETED and delivering(job):
        return enter(job, JobState.STOPPING, "training has ended; a model is still being delivered")
    outcome, reason = _achieved(job) if job.stop_outcome is JobState.COMPLETED else (job.stop_outcome, job.stop_reason)
    return enter(replace(job, stop_outcome=outcome, finished_at=now.at), outcome, reason)


def _achieved(job: Job) -> tuple[JobState, str]:
    """What the end of a script that was done by itself comes to."""
    delivered = sum(tier.state is TierState.DELIVERED for tier in job.tiers)
    over = f"; {over_words(job)}" if over_words(job) else ""
    if delivered == len(job.tiers):
        words = f"all {delivered} tiers delivered" if delivered > 1 else "its tier is delivered"
        held = job.tiers[-1].reason  # of a tier that is delivered: why its version does not answer
        return JobState.COMPLETED, (f"{words}; {held}" if held else words) + over
    missed = next(tier.tier.target for tier in job.tiers if tier.state is not TierState.DELIVERED)
    target, best = number(missed), ""
    if job.best_value is not None:
        target, reached = compared(missed, job.best_value)
        best = f", the best {job.spec.metric} was {reached}"
    if not over and job.epoch >= job.spec.max_epochs:
        over = f"; its max_epochs of {job.epoch} are over, 'tiercel resume {job.id} --max-epochs N' goes on"
    return JobState.MISSED, f"{delivered} of {len(job.tiers)} tiers delivered; {target} was not reached{best}{over}"
