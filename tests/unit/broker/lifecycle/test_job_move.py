"""How a running job goes to another node, edge by edge."""

from __future__ import annotations

import pytest

from testing.jobs import AT, SHARE, after, assigned, new_job, report, running_job, told
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import (
    AbandonDelivery,
    Announce,
    CancelRequested,
    DeclareRun,
    DropCheckpoint,
    JobEffect,
    JobInput,
    MoveOrdered,
    NodeFenced,
    NodeGone,
    NodeSilent,
    RefuseMove,
    RequestDelivery,
    Reschedule,
    RunExited,
    RunIsAlive,
    RunUnknown,
    ShareUpdated,
    Ticked,
    UsageMeasured,
    WithdrawRun,
)
from tiercel.broker.lifecycle.move import may_move
from tiercel.broker.lifecycle.run import MAX_LOST_RUNS
from tiercel.core.events import ShareChanged, StateChanged
from tiercel.core.jobs import Job, JobState, TierState
from tiercel.core.runs import Move
from tiercel.core.shares import Share

THERE = Share(0.25, None, "moved from n1 to n2 because it hardly improves any more")
ORDER = MoveOrdered("n2", THERE, 2)
CARRIED = RunExited("j1-1", 0, "the broker moves it", cpu_seconds=7.0, carried=True)
NOT_CARRIED = RunExited("j1-1", 0, "the broker moves it", carry_error="9 bytes are too many")


def training_job() -> Job:
    """A job that runs on n1 and has reported."""
    return after(running_job(), report(0.5))


def moving_job() -> Job:
    return after(training_job(), ORDER)


def states(effects: list[JobEffect]) -> list[StateChanged]:
    changes = [effect.change for effect in effects if isinstance(effect, Announce)]
    return [change for change in changes if isinstance(change, StateChanged)]


def test_an_order_makes_the_run_stop_while_the_job_goes_on_running() -> None:
    job, effects = told(training_job(), ORDER)
    assert (job.state, job.node_id, job.run_id, job.run_active) == (JobState.RUNNING, "n1", "j1-1", True)
    assert (job.moving_to, job.is_moving) == (Move("n2", THERE), True)
    assert states(effects)[0].reason.startswith("moving to node n2")
    assert effects[1:] == [DeclareRun()]


def test_with_its_checkpoint_carried_it_goes_on_elsewhere_as_the_next_run() -> None:
    job, effects = told(moving_job(), CARRIED, now=AT + 20)
    assert (job.state, job.node_id, job.run_id, job.run_active) == (JobState.STARTING, "n2", "j1-2", True)
    assert (job.share, job.moving_to, job.carried_run) == (THERE, None, "j1-1")
    assert (job.earlier.migrations, job.earlier.migrated_at, job.earlier.lost) == (1, AT + 20, 0)
    assert (job.cpu_seconds, job.earlier.cpu_seconds, job.last_sequence) == (7.0, 7.0, 0)
    assert effects[0] == WithdrawRun("n1", "j1-1")
    assert states(effects)[0].reason == "starting on node n2 from the checkpoint that came from node n1"
    assert effects[2:] == [Announce(ShareChanged("n2", THERE)), DeclareRun(), Reschedule("exit")]


def test_once_the_next_run_is_there_the_checkpoint_is_dropped_and_it_may_be_moved_again() -> None:
    job, effects = told(after(moving_job(), CARRIED), RunIsAlive("j1-2"))
    assert (job.state, job.carried_run) == (JobState.RUNNING, "")
    assert DropCheckpoint() in effects
    assert not may_move(job)
    assert may_move(after(job, report(0.6, run_id="j1-2")))


def test_what_the_first_run_used_counts_on() -> None:
    job = after(moving_job(), CARRIED, RunIsAlive("j1-2"), UsageMeasured("j1-2", 3.0))
    assert job.cpu_seconds == 10.0


@pytest.mark.parametrize("again", [ORDER, CARRIED, report(0.99, sequence=9), RunIsAlive("j1-1"), RunUnknown("j1-1")])
def test_what_is_said_again_of_the_first_run_moves_nothing_twice(again: JobInput) -> None:
    job = after(moving_job(), CARRIED)
    assert told(job, again)[0] == job


def test_the_same_order_again_only_renews_the_share() -> None:
    job = moving_job()
    assert told(job, ORDER) == (job, [])
    more = Share(0.5, None, "more")
    assert told(job, MoveOrdered("n2", more, 2))[0].moving_to == Move("n2", more)
    assert told(job, ShareUpdated("j1-1", more))[0].moving_to == Move("n2", more)
    assert told(job, ShareUpdated("j1-1", more))[0].share == SHARE


def unfit_jobs() -> dict[str, Job]:
    return {
        "waits": new_job(),
        "starts": after(new_job(), assigned()),
        "has not reported": running_job(),
        "delivers": after(running_job(), report(0.85)),
        "stops": after(training_job(), CancelRequested()),
        "does not answer": after(training_job(), NodeSilent("n1")),
        "goes elsewhere": after(training_job(), MoveOrdered("n3", THERE, 2)),
    }


@pytest.mark.parametrize("which", unfit_jobs())
def test_who_cannot_be_moved_says_so(which: str) -> None:
    job = unfit_jobs()[which]
    assert not may_move(job)
    assert told(job, MoveOrdered("n2", THERE, job.attempts + 1)) == (job, [RefuseMove()])


def test_nobody_moves_to_where_it_is() -> None:
    job = training_job()
    assert told(job, MoveOrdered("n1", THERE, 2)) == (job, [RefuseMove()])


def test_an_order_that_comes_late_changes_nothing() -> None:
    job = training_job()
    assert told(job, MoveOrdered("n2", THERE, 1)) == (job, [])
    ended = after(job, RunExited("j1-1", 0))
    assert told(ended, ORDER) == (ended, [])


@pytest.mark.parametrize(
    ("exited", "words"),
    [
        (NOT_CARRIED, "9 bytes are too many"),
        (RunExited("j1-1", -9, "it did not stop"), "it did not stop"),
        (RunExited("j1-1", None, "its agent was restarted", lost=True), "its agent was restarted"),
        (RunExited("j1-1", -15), "its checkpoint did not arrive"),
    ],
)
def test_a_move_that_fails_leaves_a_job_that_waits_for_its_checkpoints_node(exited: RunExited, words: str) -> None:
    job, effects = told(moving_job(), exited)
    assert (job.state, job.node_id, job.share, job.run_active) == (JobState.PENDING, "", None, False)
    assert (job.moving_to, job.checkpoint_node, job.earlier.lost, job.earlier.migrations) == (None, "n1", 0, 0)
    assert job.reason == f"it could not be moved to node n2 ({words}); it starts again from its last checkpoint"
    assert effects[0] == WithdrawRun("n1", "j1-1")
    back = after(job, assigned("n1", attempt=2))
    assert (back.reason, back.checkpoint_node) == ("starting on node n1", "")
    elsewhere = after(job, assigned("n3", attempt=2))
    assert elsewhere.reason == "starting on node n3 from the beginning: its checkpoint is on node n1"


def test_moves_that_fail_do_not_fail_the_job() -> None:
    job = new_job()
    for attempt in range(1, MAX_LOST_RUNS + 3):
        run_id = f"j1-{attempt}"
        job = after(job, assigned(attempt=attempt), RunIsAlive(run_id), report(0.5, run_id=run_id))
        job = after(job, MoveOrdered("n2", THERE, attempt + 1), RunExited(run_id, -9))
    assert (job.state, job.attempts) == (JobState.PENDING, MAX_LOST_RUNS + 2)


def test_a_script_that_was_done_by_itself_is_done() -> None:
    job = after(moving_job(), RunExited("j1-1", 0))
    assert (job.state, job.moving_to) == (JobState.MISSED, None)


@pytest.mark.parametrize("exited", [RunExited("j1-1", 1), RunExited("j1-1", None, "it could not be started")])
def test_a_script_that_failed_by_itself_has_failed(exited: RunExited) -> None:
    assert after(moving_job(), exited).state is JobState.FAILED


def test_a_tier_reached_on_the_way_out_is_delivered_from_the_next_run() -> None:
    job, effects = told(moving_job(), report(0.85, sequence=2))
    assert [type(effect) for effect in effects] == [Announce, Announce, RequestDelivery, Reschedule]
    job, effects = told(job, CARRIED)
    assert RequestDelivery(job.tiers[0]) in effects
    assert job.tiers[0].state is TierState.REACHED


def test_a_job_that_is_cancelled_on_the_way_out_ends_with_its_run() -> None:
    job = after(moving_job(), report(0.85, sequence=2), CancelRequested())
    assert not job.is_moving
    job, effects = told(job, RunExited("j1-1", 0, "the broker moves it"))
    assert (job.state, job.moving_to) == (JobState.CANCELLED, None)
    # Its node waits for a successor that will never come.
    assert AbandonDelivery(job.tiers[0], "cancelled") in effects


def test_a_job_that_is_cancelled_while_its_node_does_not_answer_strands_no_delivery() -> None:
    job, effects = told(after(moving_job(), report(0.85, sequence=2), NodeSilent("n1")), CancelRequested())
    assert job.state is JobState.CANCELLED
    assert [type(effect) for effect in effects if isinstance(effect, AbandonDelivery)] == [AbandonDelivery]


def test_a_run_that_takes_long_to_leave_does_not_count_as_hung() -> None:
    job = moving_job()
    assert told(job, Ticked(), now=AT + 10_000) == (job, [])


def test_a_node_that_comes_back_still_has_the_run_to_move() -> None:
    job = after(moving_job(), NodeSilent("n1"))
    assert (job.state, job.is_moving) == (JobState.DISCONNECTED, True)
    job, effects = told(job, RunIsAlive("j1-1"))
    assert (job.state, job.reason) == (JobState.RUNNING, moving_job().reason)
    assert len(states(effects)) == 1


def test_a_source_that_is_gone_takes_the_checkpoint_with_it() -> None:
    job = after(moving_job(), NodeFenced("n1", fenced=True), NodeSilent("n1"), NodeGone("n1"))
    assert (job.state, job.moving_to, job.checkpoint_node, job.earlier.lost) == (JobState.PENDING, None, "", 1)


def test_a_target_that_is_gone_leaves_the_checkpoint_for_any_other() -> None:
    job = after(moving_job(), CARRIED, NodeFenced("n2", fenced=True), NodeSilent("n2"), NodeGone("n2"))
    assert (job.state, job.carried_run, job.checkpoint_node) == (JobState.PENDING, "j1-1", "")
    job = after(job, assigned("n3", attempt=3))
    assert (job.reason, job.carried_run) == ("starting on node n3 from the checkpoint that the broker holds", "j1-1")


def test_a_run_that_could_not_fetch_its_checkpoint_is_tried_elsewhere() -> None:
    lost = RunExited("j1-2", None, "its checkpoint could not be fetched", lost=True)
    job = after(moving_job(), CARRIED, lost)
    assert (job.state, job.carried_run, job.earlier.lost) == (JobState.PENDING, "j1-1", 1)


def test_after_a_restart_of_the_broker_the_node_is_told_again() -> None:
    assert DeclareRun() in machine.after_restart(moving_job())[1]
    assert DeclareRun() in machine.after_restart(after(moving_job(), CARRIED))[1]
