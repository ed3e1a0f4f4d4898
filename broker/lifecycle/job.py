"""The life of a job: one function per kind of input, each a pure step from a job to a job and effects.

The states and their edges are drawn in ``README.md``. Inputs that speak of an earlier run, or of what is known
already, change nothing: nodes repeat themselves after every reconnection.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.domain.errors import IllegalTransitionError
from tiercel.broker.domain.events import ProgressMade, ShareChanged, StateChanged, TierChanged
from tiercel.broker.domain.jobs import Job, JobState, TierState, TierStatus
from tiercel.broker.lifecycle.job_events import (
    Announce,
    Assigned,
    CancelRequested,
    DeclareRun,
    DeliveryEnded,
    JobEffect,
    JobInput,
    KeptWaiting,
    NodeGone,
    NodeSilent,
    ReachJudged,
    Reported,
    RequestDelivery,
    Reschedule,
    RunExited,
    RunIsAlive,
    Ticked,
    UsageMeasured,
    WithdrawRun,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.domain.jobs import JobSpec

MAX_LOST_RUNS = 5

_PLACED = {JobState.STARTING, JobState.RUNNING, JobState.DISCONNECTED, JobState.STOPPING}

Step = tuple[Job, "Sequence[JobEffect]"]


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


def handle(job: Job, event: JobInput, now: float) -> Step:  # noqa: C901 - one case for each kind of input
    """Take one step.

    Args:
        job: The job as it is.
        event: What happened.
        now: Seconds since the Unix epoch.

    Returns:
        The job as it is then, and what to do, in order. The same job and no effects when nothing is to change.

    Raises:
        IllegalTransitionError: The state has no edge for this input; nothing changes.
    """
    match event:
        case Assigned():
            return _assigned(job, event)
        case KeptWaiting(reason):
            return _kept_waiting(job, reason)
        case ReachJudged(reason):
            return _reach_judged(job, reason)
        case RunIsAlive(run_id):
            return _run_is_alive(job, run_id, now)
        case Reported():
            return _reported(job, event)
        case UsageMeasured(run_id, cpu_seconds):
            return _usage_measured(job, run_id, cpu_seconds)
        case RunExited():
            return _run_exited(job, event, now)
        case NodeSilent():
            return _node_silent(job)
        case NodeGone():
            return _node_gone(job)
        case DeliveryEnded():
            return _delivery_ended(job, event, now)
        case CancelRequested():
            return _cancel_requested(job, now)
        case Ticked():
            return _ticked(job, now)


def resume(job: Job) -> Step:
    """What to do about a job that was loaded after the broker started again."""
    effects: list[JobEffect] = [RequestDelivery(tier) for tier in job.tiers if tier.state is TierState.REACHED]
    if job.run_active:
        effects.append(DeclareRun())
    if job.state in {JobState.STARTING, JobState.RUNNING}:
        job, more = _node_silent(job)
        effects.extend(more)
    return job, effects


# --- Placement --------------------------------------------------------------------------------------------------------


def _assigned(job: Job, event: Assigned) -> Step:
    if job.state is JobState.PENDING:
        placed = replace(
            job,
            attempts=job.attempts + 1,
            run_active=True,
            node_id=event.node_id,
            share=event.share,
            last_sequence=0,
            last_heard_at=None,
        )
        placed, effects = _enter(placed, JobState.STARTING, f"starting on node {event.node_id}")
        return placed, (*effects, Announce(ShareChanged(event.node_id, event.share)), DeclareRun())
    if job.state in _PLACED and event.node_id == job.node_id:
        if not job.run_active or event.share.same_limits(job.share):
            return job, ()
        return replace(job, share=event.share), (Announce(ShareChanged(event.node_id, event.share)), DeclareRun())
    if job.state.is_final:  # it finished while the plan was being made
        return job, ()
    raise IllegalTransitionError(f"job {job.id}", job.state.value, event)


def _kept_waiting(job: Job, reason: str) -> Step:
    if job.state is not JobState.PENDING or job.reason == reason:
        return job, ()
    return _enter(job, JobState.PENDING, reason)


def _reach_judged(job: Job, reason: str) -> Step:
    number = next((t.number for t in job.tiers if t.state in {TierState.PENDING, TierState.UNREACHABLE}), None)
    if number is None or job.state.is_final:
        return job, ()
    tier = job.tiers[number - 1]
    judged = replace(tier, state=TierState.UNREACHABLE if reason else TierState.PENDING, reason=reason)
    # The words contain figures that change with every report; only the judgement itself is news.
    if judged.state is tier.state:
        return job, ()
    return _with_tier(job, judged), (Announce(TierChanged(judged)),)


# --- The run ----------------------------------------------------------------------------------------------------------


def _run_is_alive(job: Job, run_id: str, now: float) -> Step:
    if run_id != job.run_id or job.state not in {JobState.STARTING, JobState.DISCONNECTED}:
        return job, ()
    started = replace(
        job,
        started_at=job.started_at if job.started_at is not None else now,
        last_heard_at=now,
    )
    if job.stop_outcome is not None:
        return _enter(started, JobState.STOPPING, job.stop_reason)
    return _enter(started, JobState.RUNNING, "")


def _reported(job: Job, event: Reported) -> Step:
    if event.run_id != job.run_id or event.sequence <= job.last_sequence or job.state.is_final:
        return job, ()
    effects: list[JobEffect] = []
    if job.state in {JobState.STARTING, JobState.DISCONNECTED}:
        job, more = _run_is_alive(job, event.run_id, event.at)
        effects.extend(more)
    job = replace(job, last_sequence=event.sequence, epoch=event.epoch, last_heard_at=event.at)
    value = event.metrics.get(job.spec.metric)
    if value is None or not math.isfinite(value):
        job, more = _fail_running(job, _bad_metric_words(job, event, value))
        return job, (*effects, *more)
    best = value if job.best_value is None else job.spec.direction.better(job.best_value, value)
    job = _with_cpu(replace(job, latest_value=value, best_value=best), event.cpu_seconds)
    effects.append(Announce(ProgressMade(event.epoch, value, dict(event.metrics), job.cpu_seconds)))
    job, more = _reach_tiers(job, value, event.at)
    return job, (*effects, *more)


def _reach_tiers(job: Job, value: float, at: float) -> Step:
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
            job = _with_tier(job, reached)
            effects += [Announce(TierChanged(reached)), RequestDelivery(reached)]
    if effects:
        effects.append(Reschedule("tier"))
    return job, effects


def _bad_metric_words(job: Job, event: Reported, value: float | None) -> str:
    metric = job.spec.metric
    if value is None:
        names = ", ".join(sorted(event.metrics)) or "nothing"
        return (
            f"epoch {event.epoch} reported {names}, but the tiers are about {metric!r}; "
            f"report it, or change the job's metric"
        )
    return f"epoch {event.epoch} reported {metric} = {value}; training has diverged or divides by zero"


def _usage_measured(job: Job, run_id: str, cpu_seconds: float) -> Step:
    if run_id != job.run_id or not job.run_active:
        return job, ()
    return _with_cpu(job, cpu_seconds), ()


def _run_exited(job: Job, event: RunExited, now: float) -> Step:
    if event.run_id != job.run_id or not job.run_active:
        # The node repeats itself until the run is no longer wanted.
        return job, (WithdrawRun(job.node_id, event.run_id),) if job.node_id else ()
    withdraw = WithdrawRun(job.node_id, job.run_id)
    job = _with_cpu(job, event.cpu_seconds)
    job = replace(job, run_active=False, finished_runs_cpu_seconds=job.cpu_seconds)
    if job.stop_outcome is None:
        if event.lost:
            job, effects = _requeue(job, event.reason or "its run was lost")
            return job, (withdraw, *effects)
        outcome, reason = _outcome_of_exit(event)
        job = replace(job, stop_outcome=outcome, stop_reason=reason)
    if job.stop_outcome is JobState.FAILED:
        job = replace(job, log_tail=event.log_tail)
    job, effects = _finish_when_settled(job, now)
    return job, (withdraw, *effects, Reschedule("exit"))


def _outcome_of_exit(event: RunExited) -> tuple[JobState, str]:
    if event.exit_code == 0:
        return JobState.COMPLETED, ""
    if event.exit_code is None:
        return JobState.FAILED, event.reason or "it could not be started"
    how = f"was ended by signal {-event.exit_code}" if event.exit_code < 0 else f"exited with code {event.exit_code}"
    return JobState.FAILED, f"the script {how}" + (f": {event.reason}" if event.reason else "")


def _requeue(job: Job, reason: str) -> Step:
    if job.attempts >= MAX_LOST_RUNS:
        job = replace(job, stop_outcome=JobState.FAILED, stop_reason=f"its run was lost {job.attempts} times: {reason}")
        return _enter(job, JobState.FAILED, job.stop_reason)
    job = replace(job, run_active=False, node_id="", share=None, finished_runs_cpu_seconds=job.cpu_seconds)
    job, effects = _enter(job, JobState.PENDING, f"{reason}; it starts again from its last checkpoint")
    return job, (*effects, Reschedule("exit"))


# --- Nodes that come and go -------------------------------------------------------------------------------------------


def _node_silent(job: Job) -> Step:
    if job.state not in {JobState.STARTING, JobState.RUNNING}:
        return job, ()
    return _enter(job, JobState.DISCONNECTED, f"node {job.node_id} does not answer; the run may well go on there")


def _node_gone(job: Job) -> Step:
    if job.state is not JobState.DISCONNECTED:
        return job, ()
    withdraw = WithdrawRun(job.node_id, job.run_id)
    job, effects = _requeue(job, f"node {job.node_id} is gone")
    return job, (withdraw, *effects)


# --- Deliveries and the end -------------------------------------------------------------------------------------------


def _delivery_ended(job: Job, event: DeliveryEnded, now: float) -> Step:
    tier = job.tiers[event.tier - 1]
    if tier.state is not TierState.REACHED:
        return job, ()
    if event.version is not None:
        ended = replace(
            tier,
            state=TierState.DELIVERED,
            delivered_value=event.value,
            delivered_seconds=max(0.0, event.at - job.submitted_at),
            version=event.version,
        )
    else:
        ended = replace(tier, state=TierState.FAILED, reason=event.reason)
    job = _with_tier(job, ended)
    effects: list[JobEffect] = [Announce(TierChanged(ended))]
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
        return _fail_running(job, words) if job.run_active else _settle(job, JobState.FAILED, words, now)
    all_delivered = all(tier.state is TierState.DELIVERED for tier in job.tiers)
    if all_delivered and not job.spec.continue_after_last_tier and job.stop_outcome is None:
        if job.run_active:
            return _stop_running(job, JobState.COMPLETED, "every tier is delivered")
        return _settle(job, JobState.COMPLETED, "", now)
    return (job, ()) if job.run_active else _finish_when_settled(job, now)


def _settle(job: Job, outcome: JobState, reason: str, now: float) -> Step:
    return _finish_when_settled(replace(job, stop_outcome=outcome, stop_reason=reason), now)


def _cancel_requested(job: Job, now: float) -> Step:
    if job.state.is_final or job.stop_outcome is JobState.CANCELLED:
        return job, ()
    if not job.run_active or job.state is JobState.DISCONNECTED:
        words = "cancelled" if not job.run_active else "cancelled; its node will stop it when it answers again"
        effects: list[JobEffect] = [WithdrawRun(job.node_id, job.run_id)] if job.node_id else []
        job = replace(job, run_active=False, stop_outcome=JobState.CANCELLED, stop_reason=words, finished_at=now)
        job, more = _enter(job, JobState.CANCELLED, words)
        return job, (*effects, *more, Reschedule("exit"))
    return _stop_running(job, JobState.CANCELLED, "cancelled")


def _ticked(job: Job, now: float) -> Step:
    if job.state is not JobState.RUNNING or job.last_heard_at is None or job.stop_outcome is not None:
        return job, ()
    silent_seconds = now - job.last_heard_at
    if silent_seconds <= job.spec.report_timeout_seconds:
        return job, ()
    return _fail_running(
        job,
        f"the script reported nothing for {silent_seconds:.0f} s (report_timeout_seconds is "
        f"{job.spec.report_timeout_seconds:g}); it hangs, or needs a longer timeout",
    )


def _fail_running(job: Job, reason: str) -> Step:
    # A failure is worth more than the reason for which the run was being stopped already.
    if job.stop_outcome is JobState.CANCELLED:
        return job, ()
    return _stop_running(job, JobState.FAILED, reason)


def _stop_running(job: Job, outcome: JobState, reason: str) -> Step:
    job = replace(job, stop_outcome=outcome, stop_reason=reason)
    if job.state is JobState.DISCONNECTED:  # the node will hear of it when it answers again
        return job, (DeclareRun(),)
    job, effects = _enter(job, JobState.STOPPING, reason)
    return job, (*effects, DeclareRun())


def _finish_when_settled(job: Job, now: float) -> Step:
    """Reach the final state once the run is gone and no delivery is under way."""
    if job.stop_outcome is None:
        return job, ()
    delivering = any(tier.state is TierState.REACHED for tier in job.tiers)
    if delivering and job.stop_outcome is JobState.COMPLETED:
        return _enter(job, JobState.STOPPING, "training has ended; a model is still being delivered")
    reason = _completed_words(job) if job.stop_outcome is JobState.COMPLETED else job.stop_reason
    return _enter(replace(job, finished_at=now), job.stop_outcome, reason)


def _completed_words(job: Job) -> str:
    delivered = sum(tier.state is TierState.DELIVERED for tier in job.tiers)
    if delivered == len(job.tiers):
        return f"all {delivered} tiers delivered" if delivered > 1 else "its tier is delivered"
    missed = job.tiers[delivered].tier.target
    best = "nothing was reported" if job.best_value is None else f"the best {job.spec.metric} was {job.best_value:g}"
    return f"{delivered} of {len(job.tiers)} tiers delivered; {missed:g} was not reached, {best}"


# --- Small steps ------------------------------------------------------------------------------------------------------


def _enter(job: Job, state: JobState, reason: str) -> Step:
    if job.state is state and job.reason == reason:
        return job, ()
    return replace(job, state=state, reason=reason), (Announce(StateChanged(state, reason)),)


def _with_tier(job: Job, tier: TierStatus) -> Job:
    tiers = list(job.tiers)
    tiers[tier.number - 1] = tier
    return replace(job, tiers=tuple(tiers))


def _with_cpu(job: Job, run_cpu_seconds: float) -> Job:
    return replace(job, cpu_seconds=max(job.cpu_seconds, job.finished_runs_cpu_seconds + run_cpu_seconds))
