"""How a job is made to wait, and to go on: its run saves a checkpoint and stops, as for a move.

By its tenant, until that lets it go on; or for a job of a higher class, and then it waits for room as others do. What
the run held is free once its exit is confirmed. The broker then has its checkpoint, so that it goes on on any node;
where that could not be sent, its node has it. A model that is being handed over is handed over first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job import begin_again, wait_again
from tiercel.broker.lifecycle.job_events import DeclareRun, RefuseMove, Reschedule
from tiercel.broker.lifecycle.move import may_move, was_stopped_to_move
from tiercel.broker.lifecycle.steps import Step, delivering, enter
from tiercel.core.jobs import Job, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.lifecycle.job_events import JobEffect, RunExited
    from tiercel.core.runs import Run

_RESUMED = "resumed by its tenant"


def suspend_requested(job: Job) -> Step:
    """The tenant wants it to wait; one that is ending anyway, or over, does not."""
    if job.state.is_final or job.suspended or job.stop_outcome is not None:
        return job, ()
    job = replace(job, suspended=True)
    if not job.run_active:
        return enter(replace(job, retry_at=None), JobState.SUSPENDED, "suspended by its tenant")
    if delivering(job):
        return enter(job, job.state, "suspended by its tenant: it stops once its model is handed over")
    return _leave(job)


def preempted(job: Job, run_id: str, why: str) -> Step:
    """The scheduler wants its room for another job; it waits like any other once its run is gone."""
    if job.run_id != run_id or job.is_stopping:  # repeated, or it stops anyway
        return job, ()
    if not may_move(job):
        return job, (RefuseMove(),)
    return _leave(replace(job, preempted=why))


def after_delivery(job: Job, effects: Sequence[JobEffect]) -> Step:
    """What was being handed over is, or never will be: a job that waited for that to be suspended stops now."""
    run_goes_on = job.run_active and job.stop_outcome is None and not job.is_leaving
    if not (job.suspended and run_goes_on) or delivering(job):
        return job, effects
    job, more = _leave(job)
    return job, (*effects, *more)


def resume_requested(job: Job, max_epochs: int) -> Step:
    """The tenant wants one that is suspended, or ended without all of its tiers, to go on; others just do.

    Args:
        job: The job.
        max_epochs: Epochs that it may train, those of earlier runs counted; 0 for as many as before.
    """
    if job.state.is_final:
        return (job, ()) if job.state is JobState.COMPLETED else begin_again(job, max_epochs)
    if not job.suspended:
        return job, ()
    job = replace(job, suspended=False, spec=replace(job.spec, max_epochs=max_epochs or job.spec.max_epochs))
    if job.is_leaving:
        return enter(job, job.state, f"{_RESUMED}: it goes on once its run has stopped")
    if job.run_active:
        return enter(job, job.state, _RESUMED)
    job, effects = enter(job, JobState.PENDING, _RESUMED)
    return job, (*effects, Reschedule("arrival"))


def suspending_words(job: Job) -> str:
    """What a job says whose run is being stopped so that it waits."""
    who = "suspended by its tenant" if job.suspended else job.preempted or _RESUMED
    return f"{who}: it saves a checkpoint on node {job.node_id} and stops there"


def was_stopped_to_wait(event: RunExited) -> bool:
    """Whether the end of a run that is being suspended belongs to that; one that had not begun yet never will."""
    return event.exit_code is None or was_stopped_to_move(event)


def left_to_wait(job: Job, run: Run, event: RunExited) -> Step:
    """Its run, which was told to stop so that it waits, is gone."""
    if event.carried:
        job, where = replace(job, carried_run=run.id), "the broker holds its checkpoint"
    else:
        why = event.carry_error or event.reason or "it did not arrive"
        where = f"its checkpoint, if it has one, is on node {run.node_id} ({why.rstrip('.')})"
    words = where if job.suspended else f"{job.preempted or _RESUMED}; {where}"
    return wait_again(job, words, checkpoint_node=run.node_id)


def _leave(job: Job) -> Step:
    if job.run is None:
        return job, ()
    refused = (RefuseMove(),) if job.is_moving else ()
    job = replace(job, run=replace(job.run, suspending=True, move=None, ordered_at=None))
    state = job.state if job.state is JobState.DISCONNECTED else JobState.STOPPING
    job, effects = enter(job, state, suspending_words(job))
    return job, (*effects, DeclareRun(), *refused)
