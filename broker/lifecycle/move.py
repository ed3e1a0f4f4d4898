"""How a running job goes to another node: it saves a checkpoint and stops, and goes on there as another run.

What it will hold on the other node is reserved when the move is decided; what it holds where it runs is free once the
exit of its run is confirmed. A move that fails leaves a job that waits, and what it had learnt where it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import Announce, DeclareRun, RefuseMove, Reschedule
from tiercel.broker.lifecycle.start import stop_seconds
from tiercel.broker.lifecycle.steps import Step, delivering, enter, request_deliveries
from tiercel.core.events import ShareChanged
from tiercel.core.jobs import Job, JobState
from tiercel.core.nodes import Drain
from tiercel.core.runs import Move, Run

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import MoveOrdered, RunExited
    from tiercel.core.moments import Moment


def may_move(job: Job) -> bool:
    """Whether it may be moved now: it trains, and nothing else is under way.

    A run that has reported can save a checkpoint; one that has not might not get so far.
    """
    run = job.run
    trains = job.state is JobState.RUNNING and run is not None and run.active and run.last_sequence > 0
    is_free = job.stop_outcome is None and not job.is_leaving and not job.suspended and not delivering(job)
    return trains and is_free and run is not None and run.finishing_from is None


def move_ordered(job: Job, event: MoveOrdered, alive: float) -> Step:
    """The scheduler wants it elsewhere."""
    if event.attempt <= job.attempts or job.state.is_final:  # repeated, or it finished while the plan was being made
        return job, ()
    move = Move(event.node_id, event.share)
    if job.run is not None and job.is_going_to(event.node_id):
        return replace(job, run=replace(job.run, move=move)), ()
    if job.run is None or event.attempt != job.attempts + 1 or event.node_id == job.node_id or not may_move(job):
        return job, (RefuseMove(),)
    job = replace(job, run=replace(job.run, move=move, ordered_at=alive))
    job, effects = enter(job, job.state, moving_words(job))
    return job, (*effects, DeclareRun())


def moving_words(job: Job) -> str:
    """What a job that runs says of its move; empty when there is none."""
    if job.moving_to is None:
        return ""
    return f"moving to node {job.moving_to.node_id}: it saves a checkpoint on node {job.node_id} and stops there"


def drained_words(job: Job, drain: Drain, why: str) -> str:
    """What a job says that runs on a drained node and is not being moved.

    Args:
        job: The job.
        drain: How its node is drained.
        why: Why there is no place for it elsewhere; empty where none was sought yet.
    """
    begin = f"node {job.node_id} is drained, where nothing new starts; this job"
    if drain is not Drain.MOVE:
        return f"{begin} runs there to its end"
    if job.spec.variant:
        follows = "follows the variants of its endpoint, which move once another node has the files of all that answer"
        return f"{begin} {follows}" + (f" ({why})" if why else "")
    if not may_move(job):
        return f"{begin} moves to another one once it has reported and hands over no model"
    return f"{begin} moves to another one as soon as that has room for it" + (f" ({why})" if why else "")


def was_stopped_to_move(event: RunExited) -> bool:
    """Whether the end of a run that is being moved belongs to that, and not to a script that was done or failed."""
    done = event.exit_code == 0 and not event.reason and not event.carried
    failed = event.exit_code is None or event.exit_code > 0
    return event.lost or event.carried or not (done or failed)


def go_on_elsewhere(job: Job, left: Run, move: Move, now: Moment) -> Step:
    """Its run is gone and the broker has the checkpoint: the next run begins on the other node."""
    job = replace(
        job,
        run=Run(
            job.id,
            left.number + 1,
            move.node_id,
            move.share,
            ordered_at=now.alive,
            stop_seconds=stop_seconds(left, now),
        ),
        earlier=replace(job.earlier.including(left), migrations=job.earlier.migrations + 1, migrated_at=now.at),
        carried_run=left.id,
    )
    words = f"starting on node {move.node_id} from the checkpoint that came from node {left.node_id}"
    job, effects = enter(job, JobState.STARTING, words)
    share = Announce(ShareChanged(move.node_id, move.share))
    return job, (*effects, share, DeclareRun(), *request_deliveries(job), Reschedule("exit"))


def failed_words(move: Move, event: RunExited) -> str:
    """Why the move of a job whose run is gone came to nothing."""
    why = event.carry_error or event.reason or "its checkpoint did not arrive"
    return f"it could not be moved to node {move.node_id} ({why.rstrip('.')})"
