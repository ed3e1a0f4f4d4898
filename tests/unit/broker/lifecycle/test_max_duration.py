"""For how long the runs of a job may exist, and what happens then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.jobs import AT, CLEAN_EXIT, LOST, SHARE, after, assigned, delivered, new_job, report, run_of, told
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.duration import run_seconds
from tiercel.broker.lifecycle.job_events import (
    DeclareRun,
    MoveOrdered,
    NodeSilent,
    RequestDelivery,
    ResumeRequested,
    RunExited,
    RunIsAlive,
    Ticked,
)
from tiercel.broker.lifecycle.move import may_move
from tiercel.broker.lifecycle.time_limit import FINISH_SECONDS
from tiercel.core.jobs import Job, JobState
from tiercel.core.moments import Moment
from tiercel.core.storage import from_json, to_json

# Waits for 60 s, then runs from here on; it reports by then.
BEGAN = AT + 60


def limited(seconds: float = 100.0) -> Job:
    job = after(new_job(max_duration_seconds=seconds, retries=1), assigned(), now=AT + 5)
    return after(job, RunIsAlive("j1-1"), now=BEGAN)


def heard(job: Job, at: float, sequence: int = 1) -> Job:
    return after(job, report(0.85, sequence=sequence, run_id=job.run_id, at=at), now=at)


def test_waiting_takes_none_of_the_time_and_running_does_up_to_the_limit() -> None:
    job = limited()
    assert run_seconds(run_of(job), Moment(BEGAN + 30, BEGAN + 30)) == 30
    assert run_of(after(job, Ticked(), now=BEGAN + 99)).finishing_from is None
    job, effects = told(job, Ticked(), now=BEGAN + 100)
    assert run_of(job).finishing_from == 100
    assert (job.state, job.stop_outcome) == (JobState.RUNNING, None), "it is not stopped, it ends by itself"
    assert job.reason == "its max_duration of 1m40s is over, so that its training ends now and what it has is delivered"
    assert effects[-1] == DeclareRun()
    assert told(job, Ticked(), now=BEGAN + 110) == (job, []), "it is told once"


def test_its_best_model_is_delivered_and_the_job_has_missed_what_it_has_not_reached() -> None:
    job = after(heard(limited(), BEGAN + 50), delivered(1), Ticked(), now=BEGAN + 100)
    job, effects = told(job, replace(report(0.88, sequence=2), ended=True), now=BEGAN + 101)
    assert [effect.tier.number for effect in effects if isinstance(effect, RequestDelivery)] == [0]
    job = after(job, delivered(0, value=0.88), CLEAN_EXIT, now=BEGAN + 102)
    assert job.state is JobState.MISSED
    assert job.reason == (
        "1 of 2 tiers delivered; 0.9 was not reached, the best accuracy was 0.85; its max_duration of 1m40s is over"
    )


def test_one_that_has_every_tier_by_then_is_completed_and_says_why_it_trains_no_more() -> None:
    job = after(new_job(max_duration_seconds=5, continue_after_last_tier=True), assigned(), RunIsAlive("j1-1"))
    job = after(job, report(0.95), delivered(1), delivered(2))
    job = after(job, Ticked(), CLEAN_EXIT, now=AT + 15)
    assert (job.state, job.reason) == (JobState.COMPLETED, "all 2 tiers delivered; its max_duration of 5s is over")


def test_one_that_has_not_reported_by_then_has_missed_its_tiers() -> None:
    job = after(limited(), Ticked(), CLEAN_EXIT, now=BEGAN + 100)
    assert job.state is JobState.MISSED
    assert job.reason == "0 of 2 tiers delivered; 0.8 was not reached; its max_duration of 1m40s is over"


def test_a_script_that_does_not_end_by_itself_is_stopped() -> None:
    job = after(heard(limited(), BEGAN + 99), delivered(1), Ticked(), now=BEGAN + 100)
    assert after(job, Ticked(), now=BEGAN + 100 + FINISH_SECONDS).state is JobState.RUNNING
    job = after(job, Ticked(), now=BEGAN + 101 + FINISH_SECONDS)
    assert (job.state, job.stop_outcome) == (JobState.STOPPING, JobState.COMPLETED)
    job = after(job, RunExited("j1-1", -9), now=BEGAN + 300)
    assert job.state is JobState.MISSED
    assert job.reason.endswith("its max_duration of 1m40s is over")


def test_the_times_of_all_runs_count_and_those_between_them_do_not() -> None:
    job = after(heard(limited(), BEGAN + 30), RunExited("j1-1", 1), now=BEGAN + 40)
    assert job.earlier.seconds == 40
    job = after(job, Ticked(), now=BEGAN + 1000)
    job = after(job, assigned(attempt=2), now=BEGAN + 1000)
    job = after(job, RunIsAlive("j1-2"), now=BEGAN + 2000)
    assert run_of(after(job, Ticked(), now=BEGAN + 2059)).finishing_from is None
    assert run_of(after(job, Ticked(), now=BEGAN + 2060)).finishing_from == 60


def test_a_lost_run_counts_as_far_as_it_was_heard_and_its_successor_only_finishes() -> None:
    job = after(heard(limited(), BEGAN + 100), LOST, now=BEGAN + 500)
    assert job.earlier.seconds == 100
    job = after(job, assigned(attempt=2), RunIsAlive("j1-2"), now=BEGAN + 600)
    job, effects = told(job, Ticked(), now=BEGAN + 601)
    assert run_of(job).finishing_from == 1
    assert DeclareRun() in effects


def test_a_restart_of_the_broker_forgets_no_more_than_it_has_to() -> None:
    job = after(limited(200), Ticked(), now=BEGAN + 59)
    assert run_of(job).time.seconds == 0, "not worth a transaction every second"
    job = after(job, Ticked(), now=BEGAN + 60)
    assert run_of(job).time.seconds == 60
    stored = from_json(Job, to_json(job))
    began_again = machine.after_restart(stored)[0]
    assert run_of(began_again).time.alive is None
    # The clock of the new life begins anew; the machine's goes on: 80 s without the broker.
    at, alive = BEGAN + 140, 7.0
    later = machine.handle(began_again, Ticked(), Moment(at, alive))[0]
    assert later == began_again, "nobody knows whether the run still exists"
    later = machine.handle(began_again, RunIsAlive("j1-1"), Moment(at, alive))[0]
    assert run_of(later).time.seconds == 140
    assert run_of(machine.handle(later, Ticked(), Moment(at + 59, alive + 59))[0]).finishing_from is None
    over = machine.handle(later, Ticked(), Moment(at + 60, alive + 60))[0]
    assert run_of(over).finishing_from == 200
    told_again = machine.after_restart(from_json(Job, to_json(over)))
    assert DeclareRun() in told_again[1]
    assert run_of(told_again[0]).finishing_from == 200


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_machine_whose_clock_is_set_changes_nothing_of_it(jump: float) -> None:
    job = limited()
    later = machine.handle(job, Ticked(), Moment(BEGAN + jump, BEGAN + 99))[0]
    assert run_of(later).finishing_from is None
    over = machine.handle(later, Ticked(), Moment(BEGAN + jump, BEGAN + 100))[0]
    assert run_of(over).finishing_from == 100


def test_a_node_that_does_not_answer_has_the_run_finish_when_it_does() -> None:
    job = after(limited(), NodeSilent("n1"), now=BEGAN + 90)
    words = job.reason
    job, effects = told(job, Ticked(), now=BEGAN + 100)
    assert (job.state, job.reason, effects) == (JobState.DISCONNECTED, words, [DeclareRun()])
    job = after(job, RunIsAlive("j1-1"), now=BEGAN + 105)
    assert job.reason.startswith("its max_duration of 1m40s is over")


def test_a_move_takes_the_time_along_and_none_begins_once_it_is_over() -> None:
    job = after(heard(limited(), BEGAN + 50), delivered(1), now=BEGAN + 51)
    moving = after(job, MoveOrdered("n2", SHARE, 2), now=BEGAN + 90)
    assert after(moving, Ticked(), now=BEGAN + 110) == moving, "it is told to stop already, and goes on elsewhere"
    moved = after(moving, RunExited("j1-1", 0, carried=True), now=BEGAN + 95)
    assert (moved.node_id, moved.earlier.seconds) == ("n2", 95)
    moved = after(moved, RunIsAlive("j1-2"), now=BEGAN + 200)
    assert run_of(after(moved, Ticked(), now=BEGAN + 205)).finishing_from == 5
    assert may_move(job)
    assert not may_move(after(job, Ticked(), now=BEGAN + 100))


def test_a_job_that_is_resumed_has_all_its_time_again() -> None:
    job = after(heard(limited(), BEGAN + 50), delivered(1), Ticked(), CLEAN_EXIT, now=BEGAN + 100)
    assert job.state is JobState.MISSED
    job = after(job, ResumeRequested(), assigned(attempt=2), RunIsAlive("j1-2"), now=BEGAN + 200)
    assert run_of(after(job, Ticked(), now=BEGAN + 299)).finishing_from is None
    assert run_of(after(job, Ticked(), now=BEGAN + 300)).finishing_from == 100
