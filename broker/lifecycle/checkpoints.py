"""Copies of a job's checkpoints: the broker has one in case the node is lost, the artefact store in case the broker is.

A job goes on from what the broker holds. Where the broker lost its folder, the artefact store gives the copy back
first, and the job waits for that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import Reschedule
from tiercel.broker.lifecycle.steps import enter
from tiercel.core.checkpoints import CheckpointCopy
from tiercel.core.jobs import JobState

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import CheckpointGone, CheckpointStored
    from tiercel.broker.lifecycle.steps import Step
    from tiercel.core.jobs import Job

_WAITS = "waits for its checkpoint, which the artefact store has"
_NO_STORE = "its checkpoint is in an artefact store, and the broker runs without one; start it with --artefacts"


def copied(job: Job, run_id: str, at: float) -> Step:
    """The broker has a copy of its newest checkpoint."""
    asked = job.spec.copy_checkpoint_seconds is not None
    if not asked or job.state.is_final or job.run_id != run_id or job.carried_run:
        return job, ()
    return replace(job, copy=CheckpointCopy(run_id, at), awaits_copy=False, prefers_copy=False), ()


def stored(job: Job, event: CheckpointStored) -> Step:
    """The artefact store has one as well."""
    if job.state.is_final or job.copy is None:
        return job, ()
    return replace(job, stored=event.stored, store_problem=""), ()


def not_stored(job: Job, problem: str) -> Step:
    """The artefact store has not its newest copy yet."""
    if job.state.is_final or job.copy is None or job.store_problem == problem:
        return job, ()
    return replace(job, store_problem=problem), ()


def held_again(job: Job, run_id: str) -> Step:
    """The artefact store has given back the copy that it waits for."""
    if not job.awaits_copy or job.copy is None or job.copy.run_id != run_id:
        return job, ()
    return replace(job, awaits_copy=False, store_problem=""), (Reschedule("arrival"),)


def gone(job: Job, event: CheckpointGone) -> Step:
    """The artefact store has not what it should have: nothing is left of its copies."""
    if not job.awaits_copy or job.copy is None or job.copy.run_id != event.run_id:
        return job, ()
    carried = "" if job.carried_run == event.run_id else job.carried_run
    job = replace(job, copy=None, stored=None, awaits_copy=False, carried_run=carried, store_problem=event.problem)
    if job.state is not JobState.PENDING:
        return job, ()
    job, effects = enter(job, JobState.PENDING, f"from the beginning: {event.problem}")
    return job, (*effects, Reschedule("arrival"))


def with_what_is_held(job: Job, held_run: str, *, has_store: bool) -> Job:
    """A job as a broker that begins anew finds it.

    Args:
        job: As it was stored.
        held_run: The run whose checkpoint is on the broker's disk, or empty. A newer one may have come unnoted.
        has_store: Whether there is an artefact store.
    """
    if held_run:
        if job.copy is None or job.carried_run:
            return job
        return replace(job, copy=replace(job.copy, run_id=held_run))
    if job.stored is None:
        return replace(job, copy=None, carried_run="")
    # A run that is about to start may do so on another machine with the node's name.
    carried = job.stored.copy.run_id if job.carried_run or job.state is JobState.STARTING else ""
    problem = "" if has_store else _NO_STORE
    job = replace(job, copy=job.stored.copy, awaits_copy=True, prefers_copy=True, carried_run=carried)
    job = replace(job, store_problem=problem)
    return replace(job, reason=problem or _WAITS) if job.state is JobState.PENDING else job
