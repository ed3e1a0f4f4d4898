"""How a running job goes to another node: it saves a checkpoint and stops, and goes on there as another run.

What it will hold on the other node is reserved when the move is decided; what it holds where it runs is free once the
exit of its run is confirmed. A move that fails leaves a job that waits, and what it had learnt where it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import Announce, DeclareRun, RefuseMove, Reschedule
from tiercel.broker.lifecycle.job_silence import unheard
from tiercel.broker.lifecycle.job_steps import Step, delivering, enter, request_deliveries, with_run_counted
from tiercel.core.events import ShareChanged
from tiercel.core.jobs import Job, JobState, Move

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import MoveOrdered, RunExited


def may_move(job: Job) -> bool:
    """Whether it may be moved now: it trains, and nothing else is under way.

    A run that has reported can save a checkpoint; one that has not might not get so far.
    """
    trains = job.state is JobState.RUNNING and job.run_active and job.last_sequence > 0
    return trains and job.stop_outcome is None and job.move is None and not delivering(job)


def move_ordered(job: Job, event: MoveOrdered) -> Step:
    """The scheduler wants it elsewhere."""
    if event.attempt <= job.attempts or job.state.is_final:  # repeated, or it finished while the plan was being made
        return job, ()
    if job.move is not None and job.is_moving and job.move.node_id == event.node_id:
        return replace(job, move=Move(event.node_id, event.share)), ()
    if event.attempt != job.attempts + 1 or event.node_id == job.node_id or not may_move(job):
        return job, (RefuseMove(),)
    job = replace(job, move=Move(event.node_id, event.share))
    job, effects = enter(job, job.state, moving_words(job))
    return job, (*effects, DeclareRun())


def moving_words(job: Job) -> str:
    """What a job that runs says of its move; empty when there is none."""
    if job.move is None or not job.is_moving:
        return ""
    return f"moving to node {job.move.node_id}: it saves a checkpoint on node {job.node_id} and stops there"


def was_stopped_to_move(job: Job, event: RunExited) -> bool:
    """Whether the end of its run belongs to its move, and not to a script that was done or failed by itself."""
    if job.move is None or job.stop_outcome is not None:
        return False
    done = event.exit_code == 0 and not event.reason and not event.carried
    failed = event.exit_code is None or event.exit_code > 0
    return event.lost or event.carried or not (done or failed)


def go_on_elsewhere(job: Job, move: Move, now: float) -> Step:
    """Its run is gone and the broker has the checkpoint: the next run begins on the other node.

    Args:
        job: The job, its run over.
        move: Where it goes.
        now: Seconds since the Unix epoch.
    """
    source, run_id = job.node_id, job.run_id
    job = replace(
        unheard(with_run_counted(job)),
        attempts=job.attempts + 1,
        run_active=True,
        node_id=move.node_id,
        share=move.share,
        move=None,
        carried_run=run_id,
        migrations=job.migrations + 1,
        migrated_at=now,
        last_sequence=0,
        offered_value=None,
        fenced=False,
    )
    words = f"starting on node {move.node_id} from the checkpoint that came from node {source}"
    job, effects = enter(job, JobState.STARTING, words)
    share = Announce(ShareChanged(move.node_id, move.share))
    return job, (*effects, share, DeclareRun(), *request_deliveries(job), Reschedule("exit"))


def failed_words(job: Job, event: RunExited) -> str:
    """Why the move of a job whose run is gone came to nothing."""
    target = job.move.node_id if job.move is not None else ""
    why = event.carry_error or event.reason or "its checkpoint did not arrive"
    return f"it could not be moved to node {target} ({why.rstrip('.')})"
