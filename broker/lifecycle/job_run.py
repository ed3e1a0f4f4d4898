"""What a job's run tells: that it is alive, what the script reported, what it has used, or nothing for too long."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.domain.events import ProgressMade, TierChanged
from tiercel.broker.domain.jobs import Job, JobState, TierState
from tiercel.broker.lifecycle.job_end import fail_running, run_exited
from tiercel.broker.lifecycle.job_events import (
    Announce,
    DropCheckpoint,
    JobEffect,
    RequestDelivery,
    Reschedule,
    RunExited,
)
from tiercel.broker.lifecycle.job_move import moving_words
from tiercel.broker.lifecycle.job_shipping import ship_best
from tiercel.broker.lifecycle.job_silence import heard, silent_seconds
from tiercel.broker.lifecycle.job_steps import Step, enter, with_tier, with_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.lifecycle.job_events import Reported, UsageMeasured

# Metrics of one report that are passed on.
MAX_METRICS = 64


def run_is_alive(job: Job, run_id: str, now: float) -> Step:
    """The node says that the run exists."""
    if run_id != job.run_id or job.state not in {JobState.STARTING, JobState.DISCONNECTED}:
        return job, ()
    started = replace(heard(job, now), started_at=job.started_at if job.started_at is not None else now)
    effects: tuple[JobEffect, ...] = ()
    if started.carried_run:  # it has what it goes on from
        started, effects = replace(started, carried_run=""), (DropCheckpoint(),)
    if job.stop_outcome is not None:
        started, entered = enter(started, JobState.STOPPING, job.stop_reason)
    else:
        started, entered = enter(started, JobState.RUNNING, moving_words(started))
    return started, (*entered, *effects)


def run_unknown(job: Job, run_id: str, now: float) -> Step:
    """The node's agent connected and knows nothing of the run."""
    if run_id != job.run_id or not job.run_active:
        return job, ()
    if job.last_heard_at is None and job.stop_outcome is None:  # it was never told to start it; now it is
        return enter(job, JobState.STARTING, f"starting on node {job.node_id}")
    words = f"node {job.node_id} came back without it"
    return run_exited(job, RunExited(run_id, exit_code=None, reason=words, lost=True), now)


def usage_measured(job: Job, event: UsageMeasured) -> Step:
    """The node measured what the run has used."""
    if event.run_id != job.run_id or not job.run_active:
        return job, ()
    return with_work(job, event.cpu_seconds, event.accelerator_seconds), ()


def reported(job: Job, event: Reported, now: float) -> Step:
    """The script reported metrics.

    The node's clock dates what was reached, never later than ours; whether the run hangs is judged by our clock alone.
    """
    if event.run_id != job.run_id or not job.run_active or event.sequence <= job.last_sequence:
        return job, ()
    job, effects = run_is_alive(job, event.run_id, now)
    job = replace(heard(job, now), last_sequence=event.sequence, epoch=event.epoch)
    job = with_work(job, event.cpu_seconds, event.accelerator_seconds)
    value = event.metrics.get(job.spec.metric)
    if value is None or not math.isfinite(value):
        job, more = fail_running(job, _bad_metric_words(job, event, value))
        return job, (*effects, *more)
    if event.ended:  # nothing new but that
        job, more = ship_best(replace(job, offered_value=value), value, now)
        return job, (*effects, *more)
    best = value if job.best_value is None else job.spec.direction.better(job.best_value, value)
    job = replace(job, latest_value=value, best_value=best)
    metrics = _passed_on(event.metrics, job.spec.metric)
    progress = ProgressMade(event.epoch, value, metrics, job.cpu_seconds, job.accelerator_seconds)
    job, more = _reach_tiers(job, value, min(event.at, now))
    job, beyond = ship_best(job, value, now)
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


def _passed_on(metrics: Mapping[str, float], metric: str) -> dict[str, float]:
    others = [name for name in metrics if name != metric][: MAX_METRICS - 1]
    return {name: metrics[name] for name in (metric, *others)}


def _bad_metric_words(job: Job, event: Reported, value: float | None) -> str:
    metric = job.spec.metric
    if value is None:
        names = ", ".join(sorted(event.metrics)[:MAX_METRICS]) or "nothing"
        return (
            f"epoch {event.epoch} reported {names}, but the tiers are about {metric!r}; "
            f"report it, or change the job's metric"
        )
    return f"epoch {event.epoch} reported {metric} = {value}; training has diverged or divides by zero"


def ticked(job: Job, now: float) -> Step:
    """Time passed: a run that has been silent for too long hangs."""
    if job.state is not JobState.RUNNING or job.last_heard_at is None or job.stop_outcome is not None:
        return job, ()
    if job.move is not None:  # it was told to stop, and its node sees to it that it does
        return job, ()
    silent = silent_seconds(job, now)
    if silent <= job.spec.report_timeout_seconds:
        return job, ()
    since = now - job.last_heard_at
    slowed = f", which is as long as {silent:.0f} s at full speed" if round(silent) < round(since) else ""
    return fail_running(
        job,
        f"the script reported nothing for {since:.0f} s{slowed} (report_timeout_seconds is "
        f"{job.spec.report_timeout_seconds:g}); it hangs, or needs a longer timeout",
    )
