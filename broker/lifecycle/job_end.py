"""How a job ends: deliveries that end, runs that are stopped, lost or gone, and the way to a final state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import job_again, job_move, job_shipping
from tiercel.broker.lifecycle.job_events import Announce, DeclareRun, JobEffect, Reschedule, WithdrawRun
from tiercel.broker.lifecycle.job_steps import (
    Step,
    abandon_deliveries,
    delivering,
    enter,
    with_tier,
    with_work,
)
from tiercel.core.events import TierChanged
from tiercel.core.jobs import Job, JobState, TierState, TierStatus

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import DeliveryEnded, RunExited
    from tiercel.core.jobs import Move
    from tiercel.core.moments import Moment

# A job fails when so many of its runs were lost in so short a time: something about it, or where it runs, is wrong.
MAX_LOST_RUNS = 5
LOST_RUNS_SECONDS = 3600.0
MAX_LOG_TAIL_CHARACTERS = 8_000
_FROM_CHECKPOINT = "it starts again from its last checkpoint"


def cancel_requested(job: Job, now: Moment) -> Step:
    """The tenant wants it to stop."""
    if job.state.is_final:
        return job, ()
    if not job.run_active or job.state is JobState.DISCONNECTED:
        words = "cancelled; its node will stop it when it answers again" if job.run_active else "cancelled"
        effects: list[JobEffect] = [WithdrawRun(job.node_id, job.run_id)] if job.node_id else []
        if not job.node_id or job.move is not None:  # what it had reached is with no node, or waits for another run
            effects.extend(abandon_deliveries(job, words))
        job = replace(
            job, run_active=False, move=None, stop_outcome=JobState.CANCELLED, stop_reason=words, finished_at=now.at
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


def run_exited(job: Job, event: RunExited, now: Moment) -> Step:
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
        outcome, reason = _outcome_of_exit(job, event)
        if job_again.may_retry(job, event):
            job, effects = job_again.retry(replace(job, log_tail=_tail(event)), reason, now)
            return job, (withdraw, *effects)
        job = replace(job, stop_outcome=outcome, stop_reason=reason)
    if job.stop_outcome is JobState.FAILED:
        job = replace(job, log_tail=_tail(event))
    # A node waits for the successor of a run that is to be moved or retried, with what it was asked to deliver from it.
    waits = job.move is not None or (event.exit_code != 0 and job.retries < job.spec.retries)
    stranded = waits and job.stop_outcome is not JobState.COMPLETED
    abandoned = abandon_deliveries(job, job.stop_reason) if stranded else ()
    job, effects = _finish_when_settled(replace(job, move=None), now)
    return job, (withdraw, *effects, *abandoned, Reschedule("exit"))


def _tail(event: RunExited) -> str:
    return event.log_tail[-MAX_LOG_TAIL_CHARACTERS:]


def _left_to_move(job: Job, move: Move, event: RunExited, now: Moment) -> Step:
    if event.carried:
        return job_move.go_on_elsewhere(job, move, now.at)
    words = f"{job_move.failed_words(job, event)}; {_FROM_CHECKPOINT}"
    return job_again.wait_again(job, words, checkpoint_node=job.node_id)


def _outcome_of_exit(job: Job, event: RunExited) -> tuple[JobState, str]:
    if event.exit_code == 0 and job.best_value is None:
        metric = job.spec.metric
        return JobState.FAILED, (
            f"the script ended without an error but never reported {metric!r}, which the tiers are about, nor anything "
            f"else; let it call job.report({metric}=…)"
        )
    if event.exit_code == 0:
        return JobState.COMPLETED, ""
    if event.exit_code is None:
        return JobState.FAILED, event.reason or "it could not be started"
    how = f"was ended by signal {-event.exit_code}" if event.exit_code < 0 else f"exited with code {event.exit_code}"
    return JobState.FAILED, f"the script {how}" + (f": {event.reason}" if event.reason else "")


def requeue(job: Job, reason: str, now: Moment, *, checkpoint_node: str = "") -> Step:
    """Start again, wherever there is room: the run is gone through no fault of the job.

    Args:
        job: The job.
        reason: Why its run is gone.
        now: The time.
        checkpoint_node: Node that has its newest checkpoint, or empty if that is gone too.
    """
    lost_at = (*(at for at in job.lost_at if now.at - at < LOST_RUNS_SECONDS), now.at)
    job = replace(job, run_active=False, lost_runs=job.lost_runs + 1, lost_at=lost_at)
    if len(lost_at) >= MAX_LOST_RUNS:
        words = f"its run was lost {len(lost_at)} times within an hour, the last time because {reason}"
        abandoned = abandon_deliveries(job, words)
        job, effects = _settle(replace(job, move=None), JobState.FAILED, words, now)
        return job, (*effects, *abandoned, Reschedule("exit"))
    return job_again.wait_again(job, f"{reason}; {_FROM_CHECKPOINT}", checkpoint_node=checkpoint_node)


def node_gone(job: Job, node_id: str, now: Moment) -> Step:
    """The node has been silent for so long that nothing it did for the job counts any more."""
    if job.node_id != node_id:
        return job, ()
    words = f"node {node_id} is gone"
    if job.state.is_final:
        return job, abandon_deliveries(job, words)
    withdraw = WithdrawRun(job.node_id, job.run_id)
    if job.stop_outcome is None or (job.stop_outcome is JobState.COMPLETED and delivering(job)):
        if job.run_active and not job.fenced:
            return enter(job, JobState.DISCONNECTED, _unfenced_words(node_id))
        job, effects = requeue(job, words, now)
        return job, (withdraw, *effects)
    abandoned = abandon_deliveries(job, words)
    job, effects = _finish_when_settled(replace(job, run_active=False, move=None), now)
    return job, (withdraw, *effects, *abandoned, Reschedule("exit"))


def _unfenced_words(node_id: str) -> str:
    return (
        f"node {node_id} has not answered for long, but may still run it, as it was the only node when it was last "
        "heard: the job goes on when the node is back; cancel it if that will never be"
    )


def delivery_ended(job: Job, event: DeliveryEnded, now: Moment) -> Step:
    """A tier was delivered, or its delivery failed."""
    if not event.tier:
        return _best_ended(job, event, now)
    tier = job.tiers[event.tier - 1]
    if tier.state is not TierState.REACHED:
        return job, ()
    job = job_shipping.shipped(job, event, now.at)
    if event.version is not None:
        ended = replace(
            tier,
            state=TierState.DELIVERED,
            delivered_value=event.value,
            delivered_seconds=max(0.0, min(event.at, now.at) - job.submitted_at),
            version=event.version,
            reason=event.reason,
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
    if job.offered_value is not None and not job.state.is_final:
        job, more = job_shipping.ship_best(job, job.offered_value, now.at)
        effects.extend(more)
    return job, effects


def _best_ended(job: Job, event: DeliveryEnded, now: Moment) -> Step:
    """The best model beyond the tiers was delivered, or could not be, which is no fault of the job."""
    if job.best is None:
        return job, ()
    job = replace(job_shipping.shipped(job, event, now.at), best=None)
    if job.run_active or job.state.is_final:
        return job, ()
    return _finish_when_settled(job, now)


def _after_delivery(job: Job, ended: TierStatus, now: Moment) -> Step:
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


def _settle(job: Job, outcome: JobState, reason: str, now: Moment) -> Step:
    return _finish_when_settled(replace(job, stop_outcome=outcome, stop_reason=reason), now)


def _finish_when_settled(job: Job, now: Moment) -> Step:
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
    if delivered == len(job.tiers):
        words = f"all {delivered} tiers delivered" if delivered > 1 else "its tier is delivered"
        held = job.tiers[-1].reason  # of a tier that is delivered: why its version does not answer
        return JobState.COMPLETED, f"{words}; {held}" if held else words
    missed = next(tier.tier.target for tier in job.tiers if tier.state is not TierState.DELIVERED)
    best = "" if job.best_value is None else f", the best {job.spec.metric} was {job.best_value:g}"
    return JobState.MISSED, f"{delivered} of {len(job.tiers)} tiers delivered; {missed:g} was not reached{best}"
