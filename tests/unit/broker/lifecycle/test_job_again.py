"""Another try: retries after a script failed, and jobs that are resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.jobs import (
    AT,
    CLEAN_EXIT,
    after,
    assigned,
    delivered,
    failed,
    final_job,
    new_job,
    report,
    running_job,
    states,
    told,
)
from tiercel.broker.lifecycle.job import BACKOFF
from tiercel.broker.lifecycle.job_events import (
    AbandonDelivery,
    CancelRequested,
    NodeFenced,
    NodeGone,
    RequestDelivery,
    Reschedule,
    ResumeRequested,
    RunExited,
    RunIsAlive,
    Ticked,
    WithdrawRun,
)
from tiercel.broker.lifecycle.run import MAX_LOST_RUNS
from tiercel.core.endpoints import delivery_id
from tiercel.core.jobs import Job, JobState, TierState
from tiercel.core.runs import EarlierRuns

CRASH = RunExited("j1-1", 1, log_tail="Traceback …", cpu_seconds=3.0)


# --- Retries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", [1, -9])
def test_a_script_that_failed_is_started_again_from_its_checkpoint_after_a_pause(exit_code: int) -> None:
    job, effects = told(after(running_job(retries=2), report(0.85), delivered(1)), replace(CRASH, exit_code=exit_code))
    assert (job.state, job.run_active, job.retries, job.log_tail) == (JobState.PENDING, False, 1, "Traceback …")
    assert (job.checkpoint_node, job.node_id, job.share, job.cpu_seconds) == ("n1", "", None, 3.0)
    assert job.reason.endswith("it starts again from its last checkpoint in 1 s, retry 1 of 2")
    assert effects[0] == WithdrawRun("n1", "j1-1")
    assert not job.concerns_scheduler, "it is not placed before its pause is over"
    assert told(job, Ticked(), now=AT + 10.9) == (job, [])
    ready, effects = told(job, Ticked(), now=AT + 11)
    assert ready.concerns_scheduler
    assert effects == [Reschedule("arrival")]
    again = after(ready, assigned(attempt=2), RunIsAlive("j1-2"))
    assert (again.state, again.run_id, again.attempts) == (JobState.RUNNING, "j1-2", 2)
    assert [tier.state for tier in again.tiers] == [TierState.DELIVERED, TierState.PENDING]


def crashed(job: Job, times: int) -> Job:
    """The job after so many of its runs crashed, one after the other."""
    for _ in range(times):
        job = after(job, Ticked(), now=AT + 1e6)
        job = after(job, assigned(attempt=job.attempts + 1), RunIsAlive(f"j1-{job.attempts + 1}"))
        job = after(job, replace(CRASH, run_id=job.run_id), now=AT + 1e6)
    return job


def test_retries_are_counted_and_the_last_failure_is_final() -> None:
    assert crashed(new_job(), 1).state is JobState.FAILED, "none is the default"
    job = crashed(new_job(retries=3), 3)
    assert (job.state, job.retries) == (JobState.PENDING, 3)
    job = crashed(job, 1)
    assert (job.state, job.reason, job.attempts) == (JobState.FAILED, "the script exited with code 1", 4)
    assert job.finished_at is not None


@pytest.mark.parametrize(("exit_code", "is_retried"), [(75, True), (-9, True), (137, True), (1, False), (-15, False)])
def test_only_the_exit_codes_that_the_spec_names_are_retried(exit_code: int, is_retried: bool) -> None:
    job = running_job(retries=2, retry_exit_codes=(75, 137))
    job = after(job, replace(CRASH, exit_code=exit_code))
    assert (job.state, job.retries) == ((JobState.PENDING, 1) if is_retried else (JobState.FAILED, 0))


def test_a_delivery_of_a_run_that_is_not_retried_is_left_to_its_node() -> None:
    job = after(running_job(retries=2, retry_exit_codes=(75,)), report(0.85))
    job, effects = told(job, CRASH)
    assert job.state is JobState.FAILED
    assert not [effect for effect in effects if isinstance(effect, AbandonDelivery)], "its node says how it ended"


@pytest.mark.parametrize(
    ("back_off", "expected"), [(30.0, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]), (7200.0, [7200] * 3)]
)
def test_pauses_double_from_what_the_spec_says_up_to_an_hour(back_off: float, expected: list[float]) -> None:
    job, pauses = new_job(retries=10, retry_back_off_seconds=back_off), []
    for _ in expected:
        job = crashed(job, 1)
        assert job.retry_at is not None
        pauses.append(job.retry_at - (AT + 1e6))
        job = replace(job, retry_at=AT)
    assert pauses == expected


def test_pauses_between_retries_double_up_to_a_bound() -> None:
    job, pauses = new_job(retries=10), []
    for _ in range(10):
        job = crashed(job, 1)
        assert job.retry_at is not None
        pauses.append(job.retry_at - (AT + 1e6))
    assert pauses == [1, 2, 4, 8, 16, 32, *[BACKOFF.longest_seconds] * 4]


def test_what_nobody_wanted_or_a_retry_cannot_mend_is_not_retried() -> None:
    job = running_job(retries=3, report_timeout_seconds=30.0)
    assert after(job, CancelRequested(), CRASH).state is JobState.CANCELLED
    assert after(job, CLEAN_EXIT).state is JobState.FAILED, "it never reported"
    assert after(job, RunExited("j1-1", None, "there is no such image")).state is JobState.FAILED
    assert after(after(job, Ticked(), now=AT + 50), RunExited("j1-1", -15)).state is JobState.FAILED, "it hung"
    lost = after(job, RunExited("j1-1", 1, lost=True))
    assert (lost.retries, lost.earlier.lost) == (0, 1), "a run that was lost is not the script's doing"


def test_a_model_that_a_crashed_run_did_not_hand_over_waits_for_its_retry() -> None:
    training = after(running_job(retries=1), report(0.85))
    job, effects = told(training, CRASH)
    assert (job.state, job.tiers[0].state) == (JobState.PENDING, TierState.REACHED)
    assert RequestDelivery(job.tiers[0]) in effects
    # When there will be no retry, its node must not go on waiting for one.
    _, effects = told(training, CancelRequested(), RunExited("j1-1", -15))
    assert [effect.tier.number for effect in effects if isinstance(effect, AbandonDelivery)] == [1]


def test_a_job_that_waits_for_its_retry_can_be_cancelled() -> None:
    job = after(running_job(retries=3), CRASH, CancelRequested())
    assert job.state is JobState.CANCELLED
    assert told(job, Ticked(), now=AT + 1e6) == (job, [])


# --- Resumed jobs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [JobState.FAILED, JobState.CANCELLED, JobState.MISSED])
def test_a_job_that_ended_goes_on_from_its_checkpoint_when_it_is_resumed(outcome: JobState) -> None:
    lost = EarlierRuns(lost=MAX_LOST_RUNS, lost_at=(AT,) * MAX_LOST_RUNS)
    ended = replace(final_job(outcome), earlier=lost, retries=2)
    job, effects = told(ended, ResumeRequested())
    assert (job.state, job.checkpoint_node, job.finished_at, job.stop_outcome) == (JobState.PENDING, "n1", None, None)
    assert (job.retries, job.earlier.lost, job.earlier.lost_at, job.log_tail) == (0, 0, (), "")
    assert job.concerns_scheduler
    assert states(effects) == [JobState.PENDING]
    assert effects[-1] == Reschedule("exit")
    again = after(job, assigned(attempt=2))
    assert (again.run_id, again.reason) == ("j1-2", "starting on node n1")
    elsewhere = after(job, assigned("n2", attempt=2))
    assert elsewhere.reason == "starting on node n2 from the beginning: its checkpoint is on node n1"


def test_a_job_that_ran_out_of_epochs_may_get_more_when_it_is_resumed() -> None:
    missed = final_job(JobState.MISSED)
    assert after(missed, ResumeRequested()).spec == missed.spec
    assert after(missed, ResumeRequested(max_epochs=300)).spec == replace(missed.spec, max_epochs=300)


def test_resuming_twice_is_resuming_once_and_what_is_completed_stays_so() -> None:
    job = after(final_job(JobState.FAILED), ResumeRequested())
    assert told(job, ResumeRequested()) == (job, [])
    running = after(job, assigned(attempt=2), RunIsAlive("j1-2"))
    assert told(running, ResumeRequested()) == (running, [])
    completed = final_job(JobState.COMPLETED)
    assert told(completed, ResumeRequested()) == (completed, [])


def test_a_resumed_job_keeps_what_it_delivered_and_may_deliver_what_failed() -> None:
    ended = after(
        running_job(), report(0.85), delivered(1), report(0.95, sequence=2), failed(2), RunExited("j1-1", -15)
    )
    assert ended.state is JobState.FAILED
    job = after(ended, ResumeRequested())
    assert [(tier.state, tier.version) for tier in job.tiers] == [(TierState.DELIVERED, 1), (TierState.PENDING, None)]
    again = after(job, assigned(attempt=2), RunIsAlive("j1-2"))
    reached, effects = told(again, report(0.95, run_id="j1-2"))
    assert RequestDelivery(reached.tiers[1]) in effects
    assert delivery_id("j1", 2, reached.tiers[1].failed_deliveries) == "j1-tier-2-again-1"


def test_a_delivery_under_way_is_not_asked_for_twice_by_a_resumed_job() -> None:
    cancelled = after(running_job(), report(0.85), CancelRequested(), CLEAN_EXIT)
    assert (cancelled.state, cancelled.tiers[0].state) == (JobState.CANCELLED, TierState.REACHED)
    job, effects = told(cancelled, ResumeRequested())
    assert RequestDelivery(job.tiers[0]) in effects
    assert (job.tiers[0].state, job.tiers[0].failed_deliveries) == (TierState.REACHED, 0)
    assert after(job, delivered(1)).tiers[0].state is TierState.DELIVERED


def test_a_run_that_finds_no_checkpoint_says_that_it_begins_again() -> None:
    job = after(running_job(retries=1), report(0.5), CRASH, assigned(attempt=2))
    again = after(job, RunIsAlive("j1-2", from_beginning=True))
    assert (again.state, again.reason) == (JobState.RUNNING, "from the beginning: node n1 has no checkpoint of it")
    assert after(job, RunIsAlive("j1-2")).reason == ""
    first = after(new_job(), assigned(), RunIsAlive("j1-1", from_beginning=True))
    assert first.reason == "", "a first run has none to find"


def test_a_job_whose_checkpoint_is_gone_says_that_it_begins_again() -> None:
    gone = after(running_job(), NodeFenced("n1", fenced=True), NodeGone("n1"), CancelRequested())
    job = after(gone, ResumeRequested(), assigned(attempt=2))
    assert job.reason == "starting on node n1 from the beginning: its checkpoint is gone"
