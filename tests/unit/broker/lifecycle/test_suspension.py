"""Jobs that their tenants make wait, and let go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.jobs import (
    CLEAN_EXIT,
    LOST,
    SHARE,
    after,
    assigned,
    delivered,
    failed,
    final_job,
    new_job,
    report,
    run_of,
    running_job,
    states,
    told,
)
from tiercel.broker.lifecycle.job_events import (
    Assigned,
    CancelRequested,
    DeclareRun,
    Deferred,
    MoveOrdered,
    NodeFenced,
    NodeGone,
    NodeSilent,
    Preempted,
    RefuseMove,
    RequestDelivery,
    Reschedule,
    ResumeRequested,
    RunExited,
    RunIsAlive,
    RunUnknown,
    SuspendRequested,
    TurnCame,
    WithdrawRun,
)
from tiercel.broker.lifecycle.machine import after_restart
from tiercel.core.jobs import Job, JobState, TierState

STOPPED = RunExited("j1-1", -15, "stopped", cpu_seconds=3.0)
CARRIED = replace(STOPPED, carried=True)


def stopping_job() -> Job:
    """A job that is being suspended, its first tier delivered."""
    return after(running_job(), report(0.85), delivered(1), SuspendRequested())


def suspended_job() -> Job:
    return after(stopping_job(), CARRIED)


def test_a_run_is_stopped_with_its_checkpoint_and_the_job_waits() -> None:
    job, effects = told(after(running_job(), report(0.5)), SuspendRequested())
    assert (job.state, job.is_leaving, job.stop_outcome) == (JobState.STOPPING, True, None)
    assert DeclareRun() in effects
    job, effects = told(job, CARRIED)
    assert (job.state, job.run, job.carried_run, job.cpu_seconds) == (JobState.SUSPENDED, None, "j1-1", 3.0)
    assert job.reason == "suspended by its tenant: the broker holds its checkpoint"
    assert not job.concerns_scheduler
    assert effects[0] == WithdrawRun("n1", "j1-1")
    assert after_restart(job) == (job, ())


def test_it_goes_on_from_that_checkpoint_when_it_is_resumed_and_nothing_was_lost() -> None:
    job, effects = told(suspended_job(), ResumeRequested())
    assert (job.state, job.earlier.lost, job.retries, job.concerns_scheduler) == (JobState.PENDING, 0, 0, True)
    assert effects[-1] == Reschedule("arrival")
    again = after(job, assigned("n2", attempt=2))
    assert again.reason == "starting on node n2 from the checkpoint that the broker holds"
    assert after(again, RunIsAlive("j1-2")).tiers[0].state is TierState.DELIVERED


def test_a_checkpoint_that_could_not_be_sent_stays_on_the_node_where_the_job_wants_to_go_on() -> None:
    job = after(stopping_job(), replace(STOPPED, carry_error="the broker has no room."))
    assert (job.state, job.carried_run, job.checkpoint_node) == (JobState.SUSPENDED, "", "n1")
    assert job.reason.endswith("is on node n1 (the broker has no room)")


def test_a_job_that_waits_does_so_until_it_is_resumed_whatever_the_scheduler_had_decided() -> None:
    job, effects = told(new_job(), SuspendRequested())
    assert states(effects) == [JobState.SUSPENDED]
    assert told(job, assigned()) == (job, []), "it was placed just before"
    assert told(job, SuspendRequested()) == (job, [])
    queued = after(replace(new_job(), queued=2), SuspendRequested(), TurnCame())
    assert (queued.state, queued.queued) == (JobState.SUSPENDED, 0), "it keeps its place"
    assert after(queued, ResumeRequested()).concerns_scheduler


def test_a_model_that_is_being_handed_over_is_handed_over_first() -> None:
    job, effects = told(after(running_job(), report(0.85)), SuspendRequested())
    assert (job.state, job.is_leaving, job.reason) == (
        JobState.RUNNING,
        False,
        "suspended by its tenant: it stops once its model is handed over",
    )
    assert DeclareRun() not in effects
    assert after(job, MoveOrdered("n2", SHARE, 2)).run == job.run, "it is moved no more"
    job, effects = told(job, delivered(1))
    assert (job.state, job.is_leaving, job.tiers[0].state) == (JobState.STOPPING, True, TierState.DELIVERED)
    assert DeclareRun() in effects
    assert after(running_job(), report(0.85), SuspendRequested(), failed(1), STOPPED).state is JobState.FAILED
    # Its run may be lost meanwhile: the next one hands it over.
    job, effects = told(after(running_job(), report(0.85), SuspendRequested()), LOST)
    assert job.state is JobState.SUSPENDED
    assert RequestDelivery(job.tiers[0]) in effects
    assert after(running_job(), report(0.85), SuspendRequested(), ResumeRequested(), delivered(1)).is_leaving is False


def test_a_job_that_is_moved_is_suspended_instead() -> None:
    moving = after(running_job(), report(0.5), MoveOrdered("n2", SHARE, 2))
    job, effects = told(moving, SuspendRequested())
    assert (job.is_moving, job.is_leaving) == (False, True)
    assert RefuseMove() in effects
    assert after(job, CARRIED).state is JobState.SUSPENDED


def test_one_that_is_resumed_while_its_run_still_stops_goes_on_once_that_is_gone() -> None:
    job = after(stopping_job(), ResumeRequested())
    assert (job.state, job.is_leaving) == (JobState.STOPPING, True)
    job = after(job, CARRIED)
    assert (job.state, job.carried_run) == (JobState.PENDING, "j1-1")
    assert after(stopping_job(), ResumeRequested(), SuspendRequested(), CARRIED).state is JobState.SUSPENDED


def test_a_node_that_is_away_suspends_it_when_it_is_back_or_gone() -> None:
    away = after(running_job(), report(0.5), NodeSilent("n1"), SuspendRequested())
    assert (away.state, away.is_leaving) == (JobState.DISCONNECTED, True)
    assert after(away, RunIsAlive("j1-1")).state is JobState.STOPPING
    assert after(away, RunIsAlive("j1-1"), CARRIED).state is JobState.SUSPENDED
    assert after(away, NodeFenced("n1", fenced=True), NodeGone("n1")).state is JobState.SUSPENDED
    never_started = after(new_job(), assigned(), SuspendRequested(), RunUnknown("j1-1"))
    assert (never_started.state, never_started.earlier.lost) == (JobState.SUSPENDED, 0)


def test_whatever_else_ends_it_counts() -> None:
    stopping = stopping_job()
    assert after(stopping, CLEAN_EXIT).state is JobState.MISSED, "the script was done by itself"
    assert after(stopping, RunExited("j1-1", 1)).state is JobState.FAILED
    assert after(stopping, report(float("nan"), sequence=2), STOPPED).state is JobState.FAILED
    assert after(stopping, CancelRequested(), STOPPED).state is JobState.CANCELLED
    assert after(suspended_job(), CancelRequested()).state is JobState.CANCELLED
    crashed = after(running_job(retries=1), report(0.5), SuspendRequested(), RunExited("j1-1", 1))
    assert (crashed.state, crashed.retry_at) == (JobState.SUSPENDED, None)
    assert after(crashed, ResumeRequested()).concerns_scheduler


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_is_over_is_not_suspended(outcome: JobState) -> None:
    job = final_job(outcome)
    assert told(job, SuspendRequested()) == (job, [])


def test_what_was_suspended_and_cancelled_goes_on_when_it_is_resumed() -> None:
    job = after(suspended_job(), CancelRequested(), ResumeRequested())
    assert (job.state, job.suspended) == (JobState.PENDING, False)


def test_a_checkpoint_that_the_broker_holds_for_a_run_that_never_began_is_kept() -> None:
    job = after(suspended_job(), ResumeRequested(), assigned("n2", attempt=2), SuspendRequested())
    assert run_of(job).suspending
    job = after(job, RunExited("j1-2", None, "stopped before it began", carry_error="it has none"))
    assert (job.state, job.carried_run) == (JobState.SUSPENDED, "j1-1")


# --- For another job --------------------------------------------------------------------------------------------------

FOR_ANOTHER = Preempted("j1-1", "suspended for job j2 of class urgent")


def test_a_run_that_is_stopped_for_another_job_leaves_one_that_waits_for_room() -> None:
    job, effects = told(after(running_job(), report(0.5)), FOR_ANOTHER)
    assert (job.state, job.suspended, job.is_stopping) == (JobState.STOPPING, False, True)
    assert any(isinstance(each, DeclareRun) for each in effects)
    assert told(job, FOR_ANOTHER) == (job, []), "told twice it stops once"
    again, _ = after_restart(job)
    assert again.is_stopping, "whoever is told of it after a restart stops it too"
    job, effects = told(again, CARRIED)
    assert (job.state, job.run_active, job.carried_run) == (JobState.PENDING, False, "j1-1")
    assert job.reason == "suspended for job j2 of class urgent; the broker holds its checkpoint"
    assert any(isinstance(each, Reschedule) for each in effects)
    job = after(job, Deferred("waits for memory"))
    assert job.reason == "suspended for job j2 of class urgent; waits for memory"
    job = after(job, Assigned("n1", SHARE, 2))
    assert (job.state, job.attempts, job.preempted) == (JobState.STARTING, 2, "")
    assert told(job, FOR_ANOTHER)[0] is job, "that was about its earlier run"


def test_a_run_that_cannot_be_stopped_now_goes_on_and_the_scheduler_hears_of_it() -> None:
    handing_over = after(running_job(), report(0.85))
    assert told(handing_over, FOR_ANOTHER) == (handing_over, [RefuseMove()])


def test_its_tenant_may_have_it_wait_meanwhile_and_then_it_does_not_go_on_by_itself() -> None:
    job = after(running_job(), report(0.5), FOR_ANOTHER, SuspendRequested(), CARRIED)
    assert job.state is JobState.SUSPENDED
    assert after(job, ResumeRequested()).state is JobState.PENDING
