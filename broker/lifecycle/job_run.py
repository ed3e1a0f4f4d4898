"""What a job's run tells: that it is alive, what the script reported, what it has used, or nothing for too long."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import job_again
from tiercel.broker.lifecycle.job_end import fail_running, run_exited
from tiercel.broker.lifecycle.job_events import (
    Announce,
    DropCheckpoint,
    JobEffect,
    RequestDelivery,
    Reschedule,
    RunExited,
    RunIsAlive,
)
from tiercel.broker.lifecycle.job_move import moving_words
from tiercel.broker.lifecycle.job_shipping import ship_best
from tiercel.broker.lifecycle.job_silence import heard, silent_seconds
from tiercel.broker.lifecycle.job_steps import Step, enter, with_tier, with_work
from tiercel.broker.lifecycle.report_bounds import carried_metrics
from tiercel.core.events import ProgressMade, TierChanged
from tiercel.core.jobs import Job, JobState, TierState

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import Reported, UsageMeasured
    from tiercel.core.moments import Moment


def run_is_alive(job: Job, event: RunIsAlive, now: Moment) -> Step:
    """The node says that the run exists."""
    if event.run_id != job.run_id or job.state not in {JobState.STARTING, JobState.DISCONNECTED}:
        return job, ()
    started = replace(heard(job, now.alive), started_at=job.started_at if job.started_at is not None else now.at)
    effects: tuple[JobEffect, ...] = ()
    if started.carried_run:  # it has what it goes on from
        started, effects = replace(started, carried_run=""), (DropCheckpoint(),)
    if job.stop_outcome is not None:
        started, entered = enter(started, JobState.STOPPING, job.stop_reason)
    else:
        started, entered = enter(started, JobState.RUNNING, moving_words(started) or _beginning_words(job, event))
    return started, (*entered, *effects)


def _beginning_words(job: Job, event: RunIsAlive) -> str:
    """What it says of a run that begins again though an earlier one had got somewhere; else nothing."""
    if not event.from_beginning or job.attempts < 2 or job.best_value is None:
        return ""
    return f"from the beginning: node {job.node_id} has no checkpoint of it"


def run_unknown(job: Job, run_id: str, now: Moment) -> Step:
    """The node's agent connected and knows nothing of the run."""
    if run_id != job.run_id or not job.run_active:
        return job, ()
    if not job.run_heard and job.stop_outcome is None:  # it was never told to start it; now it is
        return enter(job, JobState.STARTING, f"starting on node {job.node_id}")
    words = f"node {job.node_id} came back without it"
    return run_exited(job, RunExited(run_id, exit_code=None, reason=words, lost=True), now)


def usage_measured(job: Job, event: UsageMeasured) -> Step:
    """The node measured what the run has used."""
    if event.run_id != job.run_id or not job.run_active:
        return job, ()
    return with_work(job, event.cpu_seconds, event.accelerator_seconds), ()


def reported(job: Job, event: Reported, now: Moment) -> Step:
    """The script reported metrics.

    The node's clock dates what was reached, never later than ours; whether the run hangs is judged by the clock of our
    own life alone.
    """
    if event.run_id != job.run_id or not job.run_active or event.sequence <= job.last_sequence:
        return job, ()
    job, effects = run_is_alive(job, RunIsAlive(event.run_id), now)
    job = replace(heard(job, now.alive), last_sequence=event.sequence, epoch=event.epoch)
    job = with_work(job, event.cpu_seconds, event.accelerator_seconds)
    value = event.metrics.get(job.spec.metric)
    if value is None or not math.isfinite(value):
        job, more = fail_running(job, _bad_metric_words(job, event, value))
        return job, (*effects, *more)
    if event.ended:  # nothing new but that
        job, more = ship_best(replace(job, offered_value=value), value, now.at)
        return job, (*effects, *more)
    best = value if job.best_value is None else job.spec.direction.better(job.best_value, value)
    job = replace(job, latest_value=value, best_value=best)
    metrics = carried_metrics(event.metrics, job.spec.metric)
    progress = ProgressMade(event.epoch, value, metrics, job.cpu_seconds, job.accelerator_seconds)
    job, more = _reach_tiers(job, value, min(event.at, now.at))
    job, beyond = ship_best(job, value, now.at)
    return job, (*effects, Announce(progress), *more, *beyond)


def _reach_tiers(job: Job, value: float, at: float) -> Step:
    if job.stop_outcome is not None:
        return job, ()
    effects: list[JobEffect] = []
    for tier in job.tiers:
        waits = tier.state in {TierState.PENDING, TierState.UNREACHABLE}
        if waits and job.spec.direction.reaches(value, tier.tier.target):
            reached = replace(
                tier,
                state=TierState.REACHED,
                reached_value=value,
                reached_seconds=max(0.0, at - job.submitted_at),
                reason="",
            )
            job = with_tier(job, reached)
            effects += [Announce(TierChanged(reached)), RequestDelivery(reached)]
    if effects:
        effects.append(Reschedule("tier"))
    return job, effects


def _bad_metric_words(job: Job, event: Reported, value: float | None) -> str:
    metric = job.spec.metric
    if value is None:
        names = ", ".join(sorted(carried_metrics(event.metrics, metric))) or "nothing"
        return (
            f"epoch {event.epoch} reported {names}, but the tiers are about {metric!r}; "
            f"report it, or change the job's metric"
        )
    return f"epoch {event.epoch} reported {metric} = {value}; training has diverged or divides by zero"


def ticked(job: Job, now: Moment) -> Step:
    """Time passed: a run that has been silent for too long hangs; a pause before another try is over."""
    if job.state is JobState.PENDING:
        return job_again.ticked(job, now)
    if job.state is not JobState.RUNNING or job.silence is None or job.stop_outcome is not None:
        return job, ()
    if job.move is not None:  # it was told to stop, and its node sees to it that it does
        return job, ()
    silent = silent_seconds(job, now.alive)
    if silent <= job.spec.report_timeout_seconds:
        return job, ()
    since = now.alive - job.silence.since
    slowed = f", which is as long as {silent:.0f} s at full speed" if round(silent) < round(since) else ""
    return fail_running(
        job,
        f"the script reported nothing for {since:.0f} s{slowed} (report_timeout_seconds is "
        f"{job.spec.report_timeout_seconds:g}); it hangs, or needs a longer timeout",
    )
