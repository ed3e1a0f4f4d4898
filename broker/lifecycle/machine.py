"""The one door to the machines of a job: which of their steps takes which input.

Pure: an input goes in, a job and effects come out. The edges of the job are in :mod:`.job` and :mod:`.suspension`,
those of its run in :mod:`.run` and :mod:`.move`, of its tiers and what is beyond them in :mod:`.delivery`, copies of
its checkpoints in :mod:`.checkpoints`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import checkpoints, delivery, move, run, suspension, time_limit
from tiercel.broker.lifecycle import job as job_machine
from tiercel.broker.lifecycle.duration import in_a_new_life
from tiercel.broker.lifecycle.job import create
from tiercel.broker.lifecycle.job_events import (
    Assigned,
    CancelRequested,
    CheckpointCopied,
    CheckpointGone,
    CheckpointHeldAgain,
    CheckpointInput,
    CheckpointNotStored,
    CheckpointStored,
    DeclareRun,
    Deferred,
    DeliveryEnded,
    JobEffect,
    JobInput,
    MoveOrdered,
    NodeFenced,
    NodeGone,
    NodeSilent,
    Preempted,
    PrioritySet,
    Reported,
    ResumeRequested,
    RunExited,
    RunIsAlive,
    RunUnknown,
    ShareUpdated,
    SuspendRequested,
    Ticked,
    TierFeasibilityChanged,
    TurnCame,
    UsageMeasured,
)
from tiercel.broker.lifecycle.steps import Step, request_deliveries
from tiercel.core.jobs import JobState

if TYPE_CHECKING:
    from tiercel.core.jobs import Job
    from tiercel.core.moments import Moment

__all__ = ["after_restart", "create", "handle"]


def handle(job: Job, event: JobInput, now: Moment) -> Step:  # noqa: C901 - one case for each kind of input
    """Take one step.

    Returns:
        The job as it is then, and what to do, in order. The same job and no effects when nothing is to change.

    Raises:
        IllegalTransitionError: The state has no edge for this input; nothing changes.
    """
    match event:
        case Assigned():
            return job_machine.assigned(job, event, now.alive)
        case Deferred(reason):
            return job_machine.deferred(job, reason)
        case TurnCame():
            return job_machine.turn_came(job)
        case CancelRequested():
            return job_machine.cancel_requested(job, now)
        case ResumeRequested(max_epochs):
            return suspension.resume_requested(job, max_epochs)
        case SuspendRequested():
            return suspension.suspend_requested(job)
        case Preempted(run_id, why):
            return suspension.preempted(job, run_id, why)
        case PrioritySet(priority):
            return job_machine.priority_set(job, priority)
        case ShareUpdated(run_id, share):
            return run.share_updated(job, run_id, share, now.alive)
        case MoveOrdered():
            return move.move_ordered(job, event, now.alive)
        case RunIsAlive():
            return run.is_alive(job, event, now)
        case RunUnknown(run_id):
            return run.unknown(job, run_id, now)
        case Reported():
            return run.reported(job, event, now)
        case UsageMeasured():
            return run.usage_measured(job, event)
        case RunExited():
            return run.exited(job, event, now)
        case CheckpointCopied() | CheckpointStored() | CheckpointNotStored() | CheckpointHeldAgain() | CheckpointGone():
            return _checkpoint_handled(job, event)
        case NodeSilent(node_id):
            return run.node_silent(job, node_id)
        case NodeFenced(node_id, fenced):
            return run.node_fenced(job, node_id, fenced=fenced)
        case NodeGone(node_id):
            return run.node_gone(job, node_id, now)
        case TierFeasibilityChanged(reason):
            return delivery.feasibility_changed(job, reason)
        case DeliveryEnded():
            return suspension.after_delivery(*delivery.delivery_ended(job, event, now))
        case Ticked():
            return _ticked(job, now)


def _checkpoint_handled(job: Job, event: CheckpointInput) -> Step:
    match event:
        case CheckpointCopied(run_id, at):
            return checkpoints.copied(job, run_id, at)
        case CheckpointStored():
            return checkpoints.stored(job, event)
        case CheckpointNotStored(problem):
            return checkpoints.not_stored(job, problem)
        case CheckpointHeldAgain(run_id):
            return checkpoints.held_again(job, run_id)
        case CheckpointGone():
            return checkpoints.gone(job, event)


def _ticked(job: Job, now: Moment) -> Step:
    if job.state is JobState.PENDING:
        return job_machine.pause_ticked(job, now)
    ticked, effects = run.ticked(job, now)
    return (ticked, effects) if ticked is not job else time_limit.duration_ticked(job, now)


def after_restart(job: Job) -> Step:
    """What to do about a job that was loaded after the broker started again."""
    job = replace(job, retry_at=None)  # by the clock of a life that is over, as is a silence
    if job.run is not None:
        job = replace(job, run=in_a_new_life(replace(job.run, silence=None)))
    effects: list[JobEffect] = [DeclareRun()] if job.run_active else []
    effects.extend(request_deliveries(job))
    job, more = run.node_silent(job, job.node_id)
    return job, (*effects, *more)
