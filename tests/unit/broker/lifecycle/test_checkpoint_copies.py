"""A job whose checkpoint the broker has a copy of goes on from it wherever its own is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.jobs import AT, after, assigned, new_job, report, running_job, told
from tiercel.broker.lifecycle.job_events import (
    CancelRequested,
    CheckpointCopied,
    DropCheckpoint,
    MoveOrdered,
    NodeFenced,
    NodeGone,
    NodeSilent,
    ResumeRequested,
    RunExited,
    RunIsAlive,
)
from tiercel.core.checkpoints import CheckpointCopy
from tiercel.core.jobs import Job, JobState
from tiercel.core.shares import Share

GONE = (NodeFenced("n1", fenced=True), NodeSilent("n1"), NodeGone("n1"))
COPIED = CheckpointCopied("j1-1", AT + 5)


def training_job(copy_checkpoint_seconds: float | None = 60.0) -> Job:
    """A job that runs on n1, has reported, and asks for copies."""
    job = running_job()
    return after(replace(job, spec=replace(job.spec, copy_checkpoint_seconds=copy_checkpoint_seconds)), report(0.5))


def test_a_job_whose_node_is_gone_goes_on_from_the_copy() -> None:
    job, effects = told(training_job(), COPIED)
    assert (job.copy, effects) == (CheckpointCopy("j1-1", AT + 5), [])
    job = after(job, *GONE, assigned("n2", attempt=2))
    assert (job.carried_run, job.reason) == ("j1-1", "starting on node n2 from the checkpoint that the broker holds")
    job, effects = told(job, RunIsAlive("j1-2"), now=AT + 90)
    assert (job.carried_run, job.copy) == ("", CheckpointCopy("j1-1", AT + 90))
    assert DropCheckpoint() not in effects, "it serves until there is a newer one"
    assert after(job, CheckpointCopied("j1-2", AT + 99)).copy == CheckpointCopy("j1-2", AT + 99)


def test_on_the_node_that_has_its_own_checkpoint_the_copy_is_not_used() -> None:
    lost = RunExited("j1-1", None, "its agent lost it", lost=True)
    job = after(training_job(), COPIED, lost)
    assert job.checkpoint_node == "n1"
    assert after(job, assigned("n1", attempt=2)).carried_run == ""
    assert after(job, assigned("n2", attempt=2)).carried_run == "j1-1"


def test_a_job_without_a_copy_begins_again() -> None:
    job = after(training_job(), *GONE, assigned("n2", attempt=2))
    assert (job.carried_run, job.copy) == ("", None)
    assert job.reason == "starting on node n2 from the beginning: its checkpoint is gone"


@pytest.mark.parametrize(
    "job",
    [
        training_job(copy_checkpoint_seconds=None),
        new_job(),
        after(training_job(), CancelRequested(), RunExited("j1-1", 0)),
        after(training_job(), MoveOrdered("n2", Share(1.0, None, ""), 2), RunExited("j1-1", 0, carried=True)),
    ],
    ids=["asks for none", "has no run", "is over", "went on elsewhere"],
)
def test_what_is_copied_of_a_job_that_has_no_use_for_it_is_not_noted(job: Job) -> None:
    assert told(job, COPIED) == (job, [])


def test_a_job_that_is_resumed_has_no_copy_any_more() -> None:
    job = after(training_job(), COPIED, CancelRequested(), RunExited("j1-1", 0))
    assert job.state is JobState.CANCELLED
    assert after(job, ResumeRequested()).copy is None
