"""The life of a job's run, as pure steps of its job: from the first word of its node to its confirmed exit.

Its edges are drawn in ``README.md``. What it holds is free once it is over (``active`` is False). A move to another
node is in :mod:`.move`, how long a run may be silent in :mod:`.silence`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.delivery import reach_tiers, ship_best
from tiercel.broker.lifecycle.duration import counted, finishing_words, over_words, time_until
from tiercel.broker.lifecycle.environment import with_environment
from tiercel.broker.lifecycle.job import fail_running, finish_when_settled, retry, settle, wait_again
from tiercel.broker.lifecycle.job_events import (
    Announce,
    DeclareRun,
    DropCheckpoint,
    JobEffect,
    Reschedule,
    RunExited,
    RunIsAlive,
    WithdrawRun,
)
from tiercel.broker.lifecycle.move import failed_words, go_on_elsewhere, moving_words, was_stopped_to_move
from tiercel.broker.lifecycle.report_bounds import carried_metrics
from tiercel.broker.lifecycle.silence import heard, no_silence, silent_seconds, with_share
from tiercel.broker.lifecycle.start import unmeasured, with_start
from tiercel.broker.lifecycle.steps import Step, abandon_deliveries, delivering, enter, with_run_over
from tiercel.broker.lifecycle.suspension import left_to_wait, suspending_words, was_stopped_to_wait
from tiercel.core.checkpoints import CheckpointCopy
from tiercel.core.data_validation import data_hashes
from tiercel.core.events import ProgressMade, ShareChanged
from tiercel.core.exit_codes import is_retried
from tiercel.core.jobs import Job, JobState

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import Reported, UsageMeasured
    from tiercel.core.moments import Moment
    from tiercel.core.runs import Move, Run
    from tiercel.core.shares import Share

# A job fails when so many of its runs were lost in so short a time: something about it, or where it runs, is wrong.
MAX_LOST_RUNS = 5
LOST_RUNS_SECONDS = 3600.0
MAX_LOG_TAIL_CHARACTERS = 8_000
_FROM_CHECKPOINT = "it starts again from its last checkpoint"


def _present(job: Job, run_id: str) -> Run | None:
    """The job's run, if it is this one and may exist."""
    return job.run if job.run is not None and job.run.active and job.run.id == run_id else None


def share_updated(job: Job, run_id: str, share: Share, alive: float) -> Step:
    """The scheduler changed what it may use."""
    run = _present(job, run_id)
    if run is None:
        return job, ()
    if job.moving_to is not None:  # the scheduler sees it where it goes
        move = replace(job.moving_to, share=share)
        return (job if move == run.move else replace(job, run=replace(run, move=move))), ()
    if share.same_limits(run.share):
        return job, ()
    job = replace(job, run=with_share(run, share, alive))
    return job, (Announce(ShareChanged(run.node_id, share)), DeclareRun())


# --- What it tells ----------------------------------------------------------------------------------------------------


def is_alive(job: Job, event: RunIsAlive, now: Moment) -> Step:
    """The node says that it exists."""
    run = _present(job, event.run_id)
    if run is None:
        return job, ()
    job = with_environment(job, run, event)
    begun = with_start(job, run, event, now)
    if begun is not run:
        run = begun
        job = replace(job, run=run)
    if job.state not in {JobState.STARTING, JobState.DISCONNECTED}:
        return job, ()
    started_at = job.started_at if job.started_at is not None else now.at
    job = replace(
        job,
        run=heard(counted(run, now), now.alive),
        started_at=started_at,
        data_sha256={**job.data_sha256, **data_hashes(job.spec, event.data_sha256)},
        prefers_copy=False,
    )
    effects: tuple[JobEffect, ...] = ()
    if job.carried_run and job.spec.copy_checkpoint_seconds is not None:  # until there is a newer one
        job = replace(job, carried_run="", copy=CheckpointCopy(job.carried_run, now.at))
    elif job.carried_run:  # it has what it goes on from
        job, effects = replace(job, carried_run=""), (DropCheckpoint(),)
    if job.stop_outcome is not None or run.suspending:
        job, entered = enter(job, JobState.STOPPING, job.stop_reason or suspending_words(job))
    else:
        words = moving_words(job) or finishing_words(job) or _beginning_words(job, event)
        job, entered = enter(job, JobState.RUNNING, words)
    return job, (*entered, *effects)


def _beginning_words(job: Job, event: RunIsAlive) -> str:
    """What it says of a run that begins again though an earlier one had got somewhere; else nothing."""
    if not event.from_beginning or job.attempts < 2 or job.best_value is None:
        return ""
    return f"from the beginning: node {job.node_id} has no checkpoint of it"


def usage_measured(job: Job, event: UsageMeasured) -> Step:
    """The node measured what it has used."""
    run = _present(job, event.run_id)
    if run is None:
        return job, ()
    return replace(job, run=run.using(event.cpu_seconds, event.accelerator_seconds)), ()


def reported(job: Job, event: Reported, now: Moment) -> Step:
    """The script reported metrics.

    The node's clock dates what was reached, never later than ours; whether the run hangs is judged by the clock of our
    own life alone.
    """
    run = _present(job, event.run_id)
    if run is None or event.sequence <= run.last_sequence:
        return job, ()
    job, effects = is_alive(job, RunIsAlive(event.run_id), now)
    run = _reporting(run, event, now)
    value = event.metrics.get(job.spec.metric)
    # At its end a script repeats the report of its best model, which is of an earlier epoch.
    epoch = job.epoch if event.ended else event.epoch
    if value is None or not math.isfinite(value):
        job, more = fail_running(replace(job, run=run, epoch=epoch), _bad_metric_words(job, event, value))
        return job, (*effects, *more)
    if event.ended:  # nothing new but that
        job, more = ship_best(replace(job, run=replace(run, offered_value=value)), value, now.at)
        return job, (*effects, *more)
    best = value if job.best_value is None else job.spec.direction.better(job.best_value, value)
    job = replace(job, run=run, epoch=epoch, latest_value=value, best_value=best)
    metrics = carried_metrics(event.metrics, job.spec.metric)
    progress = ProgressMade(event.epoch, value, metrics, job.cpu_seconds, job.accelerator_seconds)
    job, more = reach_tiers(job, value, min(event.at, now.at))
    job, beyond = ship_best(job, value, now.at)
    return job, (*effects, Announce(progress), *more, *beyond)


def _reporting(run: Run, event: Reported, now: Moment) -> Run:
    """The run with all that a report says of it, in one copy: reports are most of what happens to a job."""
    return replace(
        run,
        heard=True,
        silence=no_silence(now.alive),
        time=time_until(run, now),
        cpu_seconds=max(run.cpu_seconds, event.cpu_seconds),
        accelerator_seconds=max(run.accelerator_seconds, event.accelerator_seconds),
        last_sequence=event.sequence,
    )


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
    """Time passed: one that has been silent for too long hangs."""
    run = job.run
    if job.state is not JobState.RUNNING or run is None or run.silence is None or job.stop_outcome is not None:
        return job, ()
    if run.move is not None:  # it was told to stop, and its node sees to it that it does
        return job, ()
    silent = silent_seconds(run, now.alive)
    if silent <= job.spec.report_timeout_seconds:
        return job, ()
    since = now.alive - run.silence.since
    slowed = f", which is as long as {silent:.0f} s at full speed" if round(silent) < round(since) else ""
    return fail_running(
        job,
        f"the script reported nothing for {since:.0f} s{slowed} (report_timeout_seconds is "
        f"{job.spec.report_timeout_seconds:g}); it hangs, or needs a longer timeout",
    )


# --- What becomes of its node -----------------------------------------------------------------------------------------


def node_silent(job: Job, node_id: str) -> Step:
    """Its node does not answer; it may well go on there."""
    if job.node_id != node_id or job.state not in {JobState.STARTING, JobState.RUNNING}:
        return job, ()
    words = f"node {job.node_id} does not answer; the run may well go on there"
    return enter(unmeasured(job), JobState.DISCONNECTED, words)


def node_fenced(job: Job, node_id: str, *, fenced: bool) -> Step:
    """Its node's agent keeps a fence, or does not."""
    if job.run is None or job.run.node_id != node_id:
        return job, ()
    return replace(job, run=replace(job.run, fenced=fenced)), ()


def node_gone(job: Job, node_id: str, now: Moment) -> Step:
    """Its node has been silent for so long that nothing it did for the job counts any more."""
    run = job.run
    if run is None or run.node_id != node_id:
        return job, ()
    words = f"node {node_id} is gone"
    if job.state.is_final:
        return job, abandon_deliveries(job, words)
    withdraw = WithdrawRun(node_id, run.id)
    if job.stop_outcome is None or (job.stop_outcome is JobState.COMPLETED and delivering(job)):
        if run.active and not run.fenced:
            return enter(job, JobState.DISCONNECTED, _unfenced_words(node_id))
        job, effects = lost(job, words, now)
        return job, (withdraw, *effects)
    abandoned = abandon_deliveries(job, words)
    job, effects = finish_when_settled(with_run_over(job), now)
    return job, (withdraw, *effects, *abandoned, Reschedule("exit"))


def _unfenced_words(node_id: str) -> str:
    return (
        f"node {node_id} has not answered for long, but may still run it, as it was the only node when it was last "
        "heard: the job goes on when the node is back; cancel it if that will never be"
    )


# --- It is gone -------------------------------------------------------------------------------------------------------


def unknown(job: Job, run_id: str, now: Moment) -> Step:
    """The node's agent connected and knows nothing of it."""
    run = _present(job, run_id)
    if run is None:
        return job, ()
    if not run.heard and job.stop_outcome is None and not run.suspending:  # it was never told to start it; now it is
        return enter(unmeasured(job), JobState.STARTING, f"starting on node {run.node_id}")
    words = f"node {run.node_id} came back without it"
    return exited(job, RunExited(run_id, exit_code=None, reason=words, lost=True), now)


def exited(job: Job, event: RunExited, now: Moment) -> Step:
    """It is gone and what it held is free."""
    run = _present(job, event.run_id)
    if run is None:  # the node repeats itself until the run is no longer wanted
        return job, (WithdrawRun(job.node_id, event.run_id),) if job.node_id else ()
    moving_to = job.moving_to
    retryable = job.retries < job.spec.retries and _may_help_against(event.exit_code, job)
    used = run.using(event.cpu_seconds, event.accelerator_seconds)
    if not event.lost and run.time.at is not None:
        used = counted(used, now)
    job = with_run_over(replace(job, run=used))
    if moving_to is not None and was_stopped_to_move(event):
        job, effects = _left_to_move(job, used, moving_to, event, now)
    elif run.suspending and job.stop_outcome is None and was_stopped_to_wait(event):
        job, effects = left_to_wait(job, run, event)
    elif job.stop_outcome is None and event.lost:
        job, effects = lost(job, event.reason or "its run was lost", now, checkpoint_node=run.node_id)
    elif job.stop_outcome is None and retryable and event.exit_code is not None:
        _, how = _outcome_of_exit(job, event)
        job, effects = retry(replace(job, log_tail=_tail(event)), how, now)
    else:
        # A node waits for the successor of a run that is to be moved or retried, with what it should deliver from it.
        job, effects = _ended(job, event, now, successor_expected=run.is_leaving or retryable)
    return job, (WithdrawRun(run.node_id, run.id), *effects)


def _may_help_against(exit_code: int | None, job: Job) -> bool:
    """Whether another try is wanted after an exit; its node says the same of it."""
    return exit_code is None or is_retried(exit_code, job.spec.retry_exit_codes)


def _left_to_move(job: Job, run: Run, move: Move, event: RunExited, now: Moment) -> Step:
    if event.carried:
        return go_on_elsewhere(job, run, move, now)
    words = f"{failed_words(move, event)}; {_FROM_CHECKPOINT}"
    return wait_again(job, words, checkpoint_node=run.node_id)


def _ended(job: Job, event: RunExited, now: Moment, *, successor_expected: bool) -> Step:
    if job.stop_outcome is None:
        outcome, reason = _outcome_of_exit(job, event)
        job = replace(job, stop_outcome=outcome, stop_reason=reason)
    if job.stop_outcome is JobState.FAILED:
        job = replace(job, log_tail=_tail(event))
    stranded = successor_expected and job.stop_outcome is not JobState.COMPLETED
    abandoned = abandon_deliveries(job, job.stop_reason) if stranded else ()
    job, effects = finish_when_settled(job, now)
    return job, (*effects, *abandoned, Reschedule("exit"))


def _tail(event: RunExited) -> str:
    return event.log_tail[-MAX_LOG_TAIL_CHARACTERS:]


def _outcome_of_exit(job: Job, event: RunExited) -> tuple[JobState, str]:
    if event.exit_code == 0 and job.best_value is None and not over_words(job):
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


def lost(job: Job, reason: str, now: Moment, *, checkpoint_node: str = "") -> Step:
    """Start again, wherever there is room: it is gone through no fault of the job.

    Args:
        job: The job.
        reason: Why its run is gone.
        now: The time.
        checkpoint_node: Node that has its newest checkpoint, or empty if that is gone too.
    """
    lost_at = (*(at for at in job.earlier.lost_at if now.at - at < LOST_RUNS_SECONDS), now.at)
    earlier = replace(job.earlier, lost=job.earlier.lost + 1, lost_at=lost_at)
    job = replace(with_run_over(job), earlier=earlier)
    if len(lost_at) >= MAX_LOST_RUNS:
        words = f"its run was lost {len(lost_at)} times within an hour, the last time because {reason}"
        abandoned = abandon_deliveries(job, words)
        job, effects = settle(job, JobState.FAILED, words, now)
        return job, (*effects, *abandoned, Reschedule("exit"))
    return wait_again(job, f"{reason}; {_FROM_CHECKPOINT}", checkpoint_node=checkpoint_node)
