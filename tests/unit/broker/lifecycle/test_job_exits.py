"""How a run ends, and what becomes of its job by that."""

from __future__ import annotations

import pytest

from testing.jobs import (
    AT,
    CLEAN_EXIT,
    after,
    delivered,
    failed,
    final_job,
    report,
    running_job,
    states,
    told,
)
from tiercel.broker.lifecycle.job_events import (
    RunExited,
    WithdrawRun,
)
from tiercel.broker.lifecycle.run import MAX_LOG_TAIL_CHARACTERS
from tiercel.core.jobs import JobState, TierState


def test_a_clean_exit_waits_for_the_delivery_under_way() -> None:
    job = after(running_job(), report(0.95), delivered(1), CLEAN_EXIT)
    assert (job.state, job.run_active) == (JobState.STOPPING, False)
    assert "still being delivered" in job.reason
    done = after(job, delivered(2), now=AT + 30)
    assert (done.state, done.finished_at) == (JobState.COMPLETED, AT + 30)


@pytest.mark.parametrize("continues", [False, True])
def test_a_script_that_is_done_before_the_last_tier_has_missed_it(*, continues: bool) -> None:
    training = running_job(continue_after_last_tier=continues)
    job = after(training, report(0.85), delivered(1), CLEAN_EXIT)
    assert (job.state, job.stop_outcome, job.finished_at) == (JobState.MISSED, JobState.MISSED, AT + 10)
    assert job.reason == "1 of 2 tiers delivered; 0.9 was not reached, the best accuracy was 0.85"
    assert job.state.is_final
    waiting = after(training, report(0.85), CLEAN_EXIT)
    assert waiting.state is JobState.STOPPING
    assert after(waiting, delivered(1)).state is JobState.MISSED


def test_a_job_whose_epochs_were_too_few_hears_how_it_goes_on() -> None:
    job = after(running_job(max_epochs=1), report(0.85), delivered(1), CLEAN_EXIT)
    assert job.reason.endswith("; its max_epochs of 1 are over, 'tiercel resume j1 --max-epochs N' goes on")


def test_a_script_that_never_reported_has_failed_and_hears_what_to_do() -> None:
    job = after(running_job(), RunExited("j1-1", 0, log_tail="loading\n"))
    assert (job.state, job.log_tail) == (JobState.FAILED, "loading\n")
    assert job.reason == (
        "the script ended without an error but never reported 'accuracy', which the tiers are about, nor anything "
        "else; let it call job.report(accuracy=…)"
    )


def test_a_failed_delivery_fails_the_job_once_its_run_is_gone() -> None:
    job = after(running_job(), report(0.85), failed(1))
    assert (job.state, job.tiers[0].state) == (JobState.STOPPING, TierState.FAILED)
    done = after(job, RunExited("j1-1", -15))
    assert done.state is JobState.FAILED
    assert "could not be delivered: the model does not export" in done.reason


def test_a_failed_delivery_after_a_clean_exit_fails_the_job() -> None:
    job = after(running_job(), report(0.85), CLEAN_EXIT, failed(1))
    assert (job.state, job.finished_at) == (JobState.FAILED, AT + 10)


@pytest.mark.parametrize(
    ("exit_code", "reason", "words"),
    [
        (3, "", "the script exited with code 3"),
        (-9, "out of memory", "the script was ended by signal 9: out of memory"),
        (None, "there is no such image", "there is no such image"),
        (None, "", "it could not be started"),
    ],
)
def test_a_crash_says_how_with_the_last_lines(exit_code: int | None, reason: str, words: str) -> None:
    job, effects = told(running_job(), RunExited("j1-1", exit_code, reason, "Traceback …", 4.0))
    assert (job.state, job.reason, job.log_tail, job.cpu_seconds) == (JobState.FAILED, words, "Traceback …", 4.0)
    assert (job.run_active, job.finished_at) == (False, AT + 10)
    assert effects[0] == WithdrawRun("n1", "j1-1")


def test_the_last_lines_are_bounded() -> None:
    job = after(running_job(), RunExited("j1-1", 1, log_tail="x" * 1_000_000))
    assert len(job.log_tail) == MAX_LOG_TAIL_CHARACTERS


def test_an_exit_told_again_is_only_withdrawn_again() -> None:
    job = final_job(JobState.FAILED)
    assert told(job, RunExited("j1-1", 0)) == (job, [WithdrawRun("n1", "j1-1")])


def test_a_delivery_that_ends_after_the_job_still_counts() -> None:
    job = after(running_job(), report(0.85), RunExited("j1-1", 1))
    assert job.state is JobState.FAILED
    later, effects = told(job, delivered(1))
    assert later.tiers[0].state is TierState.DELIVERED
    assert states(effects) == []
    assert later.state is JobState.FAILED
