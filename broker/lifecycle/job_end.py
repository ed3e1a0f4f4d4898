"""How a job ends: deliveries that end, runs that are stopped, lost or gone, and the way to a final state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.domain.events import TierChanged
from tiercel.broker.domain.jobs import Job, JobState, TierState, TierStatus
from tiercel.broker.lifecycle import job_move
from tiercel.broker.lifecycle.job_events import Announce, DeclareRun, JobEffect, Reschedule, WithdrawRun
from tiercel.broker.lifecycle.job_steps import (
    Step,
    abandon_deliveries,
    delivering,
    enter,
    request_deliveries,
    with_run_counted,
    with_tier,
    with_work,
)

if TYPE_CHECKING:
    from tiercel.broker.domain.jobs import Move
    from tiercel.broker.lifecycle.job_events import DeliveryEnded, RunExited

# A job fails when so many of its runs were lost in so short a time: something about it, or where it runs, is wrong.
MAX_LOST_RUNS = 5
LOST_RUNS_SECONDS = 3600.0
MAX_LOG_TAIL_CHARACTERS = 8_000


def cancel_requested(job: Job, now: float) -> Step:
    """The tenant wants it to stop."""
    if job.state.is_final:
        return job, ()
    if not job.run_active or job.state is JobState.DISCONNECTED:
        words = "cancelled; its node will stop it when it answers again" if job.run_active else "cancelled"
        effects: list[JobEffect] = [WithdrawRun(job.node_id, job.run_id)] if job.node_id else []
        if not job.node_id or job.move is not None:  # what it had reached is with no node, or waits for another run
            effects.extend(abandon_deliveries(job, words))
        job = replace(
            job, run_active=False, move=None, stop_outcome=JobState.CANCELLED, stop_reason=words, finished_at=now
        )
        job, more = enter(job, JobState.CANCELLED, words)
        return job, (*effects, *more, Reschedule("exit"))
    if job.stop_outcome is not None:  # it is ending already, and how it ends says more
        return job, ()
    return _stop_running(job, JobState.CANCELLED, "cancelled")


def fail_running(job: Job, reason: str) -> Step:
    """Stop the run since something is wrong with the job; the first reason to stop is the one that counts."""
    if job.stop_outcome is not None:
        return job, ()
    return _stop_running(job, JobState.FAILED, reason)


def run_exited(job: Job, event: RunExited, now: float) -> Step:
    """The run is gone and what it held is free."""
    if event.run_id != job.run_id or not job.run_active:
        # The node repeats itself until the run is no longer wanted.
        return job, (WithdrawRun(job.node_id, event.run_id),) if job.node_id else ()
    withdraw = WithdrawRun(job.node_id, job.run_id)
    job = replace(with_work(job, event.cpu_seconds, event.accelerator_seconds), run_active=False)
    if job.move is not None and job_move.was_stopped_to_move(job, event):
        job, effects = _left_to_move(job, job.move, event, now)
        return job, (withdraw, *effects)
    if job.stop_outcome is None and event.lost:
        job, effects = requeue(job, event.reason or "its run was lost", now, checkpoint_node=job.node_id)
        return job, (withdraw, *effects)
    if job.stop_outcome is None:
        outcome, reason = _outcome_of_exit(event)
        job = replace(job, stop_outcome=outcome, stop_reason=reason)
    if job.stop_outcome is JobState.FAILED:
        job = replace(job, log_tail=event.log_tail[-MAX_LOG_TAIL_CHARACTERS:])
    # A node waits with what it was asked to deliver from a run that is to be moved for the run's successor.
    stranded = job.move is not None and job.stop_outcome is not JobState.COMPLETED
    abandoned = abandon_deliveries(job, job.stop_reason) if stranded else ()
    job, effects = _finish_when_settled(replace(job, move=None), now)
    return job, (withdraw, *effects, *abandoned, Reschedule("exit"))


def _left_to_move(job: Job, move: Move, event: RunExited, now: float) -> Step:
    if event.carried:
        return job_move.go_on_elsewhere(job, move, now)
    return _wait_again(job, job_move.failed_words(job, event), checkpoint_node=job.node_id)


def _outcome_of_exit(event: RunExited) -> tuple[JobState, str]:
    if event.exit_code == 0:
        return JobState.COMPLETED, ""
    if event.exit_code is None:
        return JobState.FAILED, event.reason or "it could not be started"
    how = f"was ended by signal {-event.exit_code}" if event.exit_code < 0 else f"exited with code {event.exit_code}"
    return JobState.FAILED, f"the script {how}" + (f": {event.reason}" if event.reason else "")


def requeue(job: Job, reason: str, now: float, *, checkpoint_node: str = "") -> Step:
    """Start again, wherever there is room: the run is gone through no fault of the job.

    Args:
        job: The job.
        reason: Why its run is gone.
        now: Seconds since the Unix epoch.
        checkpoint_node: Node that has its newest checkpoint, or empty if that is gone too.
    """
    lost_at = (*(at for at in job.lost_at if now - at < LOST_RUNS_SECONDS), now)
    job = replace(job, run_active=False, lost_runs=job.lost_runs + 1, lost_at=lost_at)
    if len(lost_at) >= MAX_LOST_RUNS:
        words = f"its run was lost {len(lost_at)} times within an hour, the last time because {reason}"
        abandoned = abandon_deliveries(job, words)
        job, effects = _settle(replace(job, move=None), JobState.FAILED, words, now)
        return job, (*effects, *abandoned, Reschedule("exit"))
    return _wait_again(job, reason, checkpoint_node=checkpoint_node)


def _wait_again(job: Job, reason: str, *, checkpoint_node: str) -> Step:
    job = replace(
        with_run_counted(job),
        run_active=False,
        node_id="",
        share=None,
        stop_outcome=None,
        stop_reason="",
        move=None,
        # What the broker holds serves on every node; what a node holds serves there.
        checkpoint_node="" if job.carried_run else checkpoint_node,
    )
    job, effects = enter(job, JobState.PENDING, f"{reason}; it starts again from its last checkpoint")
    # Their node cannot carry them out any more; the next one will.
    return job, (*effects, *request_deliveries(job), Reschedule("exit"))


def node_gone(job: Job, node_id: str, now: float) -> Step:
    """The node has been silent for so long that nothing it did for the job counts any more."""
    if job.node_id != node_id:
        return job, ()
    words = f"node {node_id} is gone"
    if job.state.is_final:
        return job, abandon_deliveries(job, words)
    withdraw = WithdrawRun(job.node_id, job.run_id)
    if job.stop_outcome is None or (job.stop_outcome is JobState.COMPLETED and delivering(job)):
        job, effects = requeue(job, words, now)
        return job, (withdraw, *effects)
    abandoned = abandon_deliveries(job, words)
    job, effects = _finish_when_settled(replace(job, run_active=False, move=None), now)
    return job, (withdraw, *effects, *abandoned, Reschedule("exit"))


def delivery_ended(job: Job, event: DeliveryEnded, now: float) -> Step:
    """A tier was delivered, or its delivery failed."""
    tier = job.tiers[event.tier - 1]
    if tier.state is not TierState.REACHED:
        return job, ()
    if event.version is not None:
        ended = replace(
            tier,
            state=TierState.DELIVERED,
            delivered_value=event.value,
            delivered_seconds=max(0.0, min(event.at, now) - job.submitted_at),
            version=event.version,
        )
    else:
        ended = replace(tier, state=TierState.FAILED, reason=event.reason)
    job = with_tier(job, ended)
    effects: list[JobEffect] = [Announce(TierChanged(ended))]
    if job.run_active:
        effects.append(Reschedule("tier"))  # it kept its place for that, which others wait for
    if not job.state.is_final:
        job, more = _after_delivery(job, ended, now)
        effects.extend(more)
    return job, effects


def _after_delivery(job: Job, ended: TierStatus, now: float) -> Step:
    if ended.state is TierState.FAILED:
        words = (
            f"tier {ended.number} ({job.spec.metric} {ended.tier.target:g}) was reached, "
            f"but its model could not be delivered: {ended.reason}"
        )
        return fail_running(job, words) if job.run_active else _settle(job, JobState.FAILED, words, now)
    all_delivered = all(tier.state is TierState.DELIVERED for tier in job.tiers)
    if all_delivered and not job.spec.continue_after_last_tier and job.stop_outcome is None:
        if job.run_active:
            return _stop_running(job, JobState.COMPLETED, "every tier is delivered")
        return _settle(job, JobState.COMPLETED, "", now)
    return (job, ()) if job.run_active else _finish_when_settled(job, now)


def _stop_running(job: Job, outcome: JobState, reason: str) -> Step:
    job = replace(job, stop_outcome=outcome, stop_reason=reason)
    if job.state is JobState.DISCONNECTED:  # the node will hear of it when it answers again
        return job, (DeclareRun(),)
    job, effects = enter(job, JobState.STOPPING, reason)
    return job, (*effects, DeclareRun())


def _settle(job: Job, outcome: JobState, reason: str, now: float) -> Step:
    return _finish_when_settled(replace(job, stop_outcome=outcome, stop_reason=reason), now)


def _finish_when_settled(job: Job, now: float) -> Step:
    """Reach the final state once the run is gone and no delivery is under way."""
    if job.stop_outcome is None:
        return job, ()
    if job.stop_outcome is JobState.COMPLETED and delivering(job):
        return enter(job, JobState.STOPPING, "training has ended; a model is still being delivered")
    reason = _completed_words(job) if job.stop_outcome is JobState.COMPLETED else job.stop_reason
    return enter(replace(job, finished_at=now), job.stop_outcome, reason)


def _completed_words(job: Job) -> str:
    delivered = sum(tier.state is TierState.DELIVERED for tier in job.tiers)
    if delivered == len(job.tiers):
        return f"all {delivered} tiers delivered" if delivered > 1 else "its tier is delivered"
    missed = job.tiers[delivered].tier.target
    best = "nothing was reported" if job.best_value is None else f"the best {job.spec.metric} was {job.best_value:g}"
    return f"{delivered} of {len(job.tiers)} tiers delivered; {missed:g} was not reached, {best}"
