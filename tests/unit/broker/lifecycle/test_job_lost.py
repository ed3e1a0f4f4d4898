"""The life of a job, edge by edge: runs that hang or are lost, nodes that come and go, a broker that starts again."""

from __future__ import annotations

import math
from typing import Any

import pytest

from testing.jobs import (
    AT,
    CLEAN_EXIT,
    LOST,
    after,
    assigned,
    delivered,
    final_job,
    new_job,
    report,
    run_of,
    running_job,
    told,
)
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import (
    AbandonDelivery,
    Announce,
    CancelRequested,
    DeclareRun,
    JobInput,
    NodeFenced,
    NodeGone,
    NodeSilent,
    RequestDelivery,
    Reschedule,
    RunExited,
    RunIsAlive,
    RunUnknown,
    ShareUpdated,
    Ticked,
    WithdrawRun,
)
from tiercel.broker.lifecycle.run import LOST_RUNS_SECONDS, MAX_LOST_RUNS
from tiercel.broker.lifecycle.silence import hangs_at
from tiercel.core.jobs import Job, JobState, TierState
from tiercel.core.shares import Share

# --- Hanging ----------------------------------------------------------------------------------------------------------

UNFENCED = NodeFenced("n1", fenced=False)


def test_a_silent_run_hangs() -> None:
    job = running_job(report_timeout_seconds=30.0)
    assert told(job, Ticked(), now=AT + 40) == (job, [])
    hung, effects = told(job, Ticked(), now=AT + 40.1)
    assert (hung.state, hung.stop_outcome) == (JobState.STOPPING, JobState.FAILED)
    assert "reported nothing for 30 s" in hung.reason
    assert effects[-1] == DeclareRun()
    assert told(hung, Ticked(), now=AT + 500) == (hung, [])


def test_only_what_a_run_could_use_of_its_silence_counts() -> None:
    """At a hundredth of its speed a run reports a hundred times as seldom, and does not hang for that."""
    job = after(running_job(report_timeout_seconds=30.0), ShareUpdated("j1-1", Share(0.01, speed=0.01)))
    assert told(job, Ticked(), now=AT + 2999) == (job, [])
    hung = after(job, Ticked(), now=AT + 3011)
    assert "reported nothing for 3001 s, which is as long as 30 s at full speed" in hung.reason


def test_silence_counts_by_the_share_of_its_time() -> None:
    slow = after(running_job(report_timeout_seconds=30.0), ShareUpdated("j1-1", Share(0.01, speed=0.01)))
    in_front = after(slow, ShareUpdated("j1-1", Share(0.99, speed=1.0)), now=AT + 1010)
    # A thousand seconds at a hundredth of its speed count as ten.
    assert told(in_front, Ticked(), now=AT + 1029.9) == (in_front, [])
    assert after(in_front, Ticked(), now=AT + 1030.1).state is JobState.STOPPING
    back = after(in_front, ShareUpdated("j1-1", Share(0.01, speed=0.01)), now=AT + 1025)
    assert told(back, Ticked(), now=AT + 1500) == (back, [])
    assert after(back, Ticked(), now=AT + 1530).state is JobState.STOPPING


def test_a_report_ends_a_silence() -> None:
    slow = after(running_job(report_timeout_seconds=30.0), ShareUpdated("j1-1", Share(0.01, speed=0.5)))
    heard = after(slow, report(0.5), now=AT + 60)
    assert told(heard, Ticked(), now=AT + 119) == (heard, [])
    assert after(heard, Ticked(), now=AT + 121).state is JobState.STOPPING


@pytest.mark.parametrize("speeds", [(), (0.01,), (0.5, 1.0), (1.0, 0.02, 0.3)])
def test_when_a_run_will_hang_is_known(speeds: tuple[float, ...]) -> None:
    job = running_job(report_timeout_seconds=30.0)
    for number, speed in enumerate(speeds, start=1):
        job = after(job, ShareUpdated("j1-1", Share(number / 10, speed=speed)), now=AT + 10 + number)
    moment = hangs_at(run_of(job), 30.0)
    assert told(job, Ticked(), now=moment - 1e-3) == (job, [])
    assert after(job, Ticked(), now=moment + 1e-3).state is JobState.STOPPING
    assert hangs_at(run_of(after(new_job(), assigned())), 30.0) == math.inf


def test_the_clock_of_the_node_cannot_make_a_run_hang() -> None:
    job = after(running_job(report_timeout_seconds=30.0), report(0.5, at=0.0), now=AT + 100)
    assert told(job, Ticked(), now=AT + 129) == (job, [])


@pytest.mark.parametrize(
    "job",
    [new_job(), after(new_job(), assigned()), after(running_job(), NodeSilent("n1")), final_job(JobState.COMPLETED)],
)
def test_only_a_running_job_can_hang(job: Job) -> None:
    assert told(job, Ticked(), now=AT + 1e9) == (job, [])


# --- Runs that are lost -----------------------------------------------------------------------------------------------


def test_a_lost_run_is_started_again() -> None:
    job, effects = told(running_job(), LOST)
    assert (job.state, job.node_id, job.share, job.run_active) == (JobState.PENDING, "", None, False)
    assert "its agent was started again; it starts again" in job.reason
    assert effects[0] == WithdrawRun("n1", "j1-1")
    assert effects[-1] == Reschedule("exit")
    again = after(job, assigned("n2", attempt=2), RunIsAlive("j1-2"))
    assert (again.state, again.run_id, again.last_sequence) == (JobState.RUNNING, "j1-2", 0)
    assert after(again, report(0.5, sequence=1, run_id="j1-2")).latest_value == 0.5


def test_what_a_lost_run_reached_is_delivered_by_the_next_one() -> None:
    job, effects = told(after(running_job(), report(0.85)), LOST)
    assert RequestDelivery(job.tiers[0]) in effects, "its node is told to leave it"
    assert job.tiers[0].state is TierState.REACHED
    again, effects = told(job, assigned("n2", attempt=2))
    assert effects[-2:] == [DeclareRun(), RequestDelivery(again.tiers[0])]
    assert after(again, delivered(1)).tiers[0].state is TierState.DELIVERED


def test_runs_are_lost_a_bounded_number_of_times() -> None:
    job = after(running_job(), report(0.85))
    for attempt in range(1, MAX_LOST_RUNS):
        job = after(job, RunExited(f"j1-{attempt}", None, lost=True), assigned(attempt=attempt + 1))
    job, effects = told(job, RunExited(f"j1-{MAX_LOST_RUNS}", None, "no luck", lost=True))
    assert (job.state, job.run_active, job.finished_at) == (JobState.FAILED, False, AT + 10)
    assert f"lost {MAX_LOST_RUNS} times" in job.reason
    assert [effect for effect in effects if isinstance(effect, AbandonDelivery)]
    assert effects[-1] == Reschedule("exit")


def test_runs_that_were_lost_long_ago_do_not_count() -> None:
    """A long job outlives any number of restarts of its machines; only many in a short time say that it is to blame."""
    job, attempt, now = running_job(), 0, AT
    for attempt in range(1, 5 * MAX_LOST_RUNS):
        now += LOST_RUNS_SECONDS / (MAX_LOST_RUNS - 1)
        job = after(job, RunExited(f"j1-{attempt}", None, lost=True), assigned(attempt=attempt + 1), now=now)
        assert len(job.earlier.lost_at) < MAX_LOST_RUNS
    assert job.earlier.lost == attempt
    for _ in range(2):
        attempt += 1
        job = after(job, RunExited(f"j1-{attempt}", None, lost=True), assigned(attempt=attempt + 1), now=now + 1)
    assert job.state is JobState.FAILED


def test_a_run_lost_while_it_was_stopped_ends_as_it_was_meant_to() -> None:
    assert after(running_job(), CancelRequested(), LOST).state is JobState.CANCELLED


def test_a_node_that_comes_back_without_a_run_has_lost_it() -> None:
    job = after(running_job(), NodeSilent("n1"), RunUnknown("j1-1"))
    assert job.state is JobState.PENDING
    assert "came back without it" in job.reason


def test_a_node_that_never_heard_of_a_run_starts_it() -> None:
    silent = after(new_job(), assigned(), NodeSilent("n1"))
    assert silent.state is JobState.DISCONNECTED
    job = after(silent, RunUnknown("j1-1"))
    assert (job.state, job.attempts, job.run_active) == (JobState.STARTING, 1, True)


def test_a_run_that_is_to_stop_and_is_unknown_has_stopped() -> None:
    assert after(running_job(), CancelRequested(), RunUnknown("j1-1")).state is JobState.CANCELLED


# --- Nodes that come and go -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alive", [(), (RunIsAlive("j1-1"),)])
def test_a_silent_node_disconnects_its_jobs(alive: tuple[JobInput, ...]) -> None:
    job = after(new_job(), assigned(), *alive, NodeSilent("n1"))
    assert (job.state, job.run_active) == (JobState.DISCONNECTED, True)
    assert "may well go on" in job.reason
    assert after(job, RunIsAlive("j1-1")).state is JobState.RUNNING
    assert after(job, report(0.5)).state is JobState.RUNNING


@pytest.mark.parametrize("message", [NodeSilent("n2"), NodeGone("n2")])
@pytest.mark.parametrize("job", [new_job(), running_job(), final_job(JobState.FAILED)])
def test_what_becomes_of_another_node_does_not_matter(job: Job, message: JobInput) -> None:
    assert told(job, message) == (job, [])


@pytest.mark.parametrize("before", [(), (RunIsAlive("j1-1"),), (RunIsAlive("j1-1"), NodeSilent("n1"))])
def test_a_gone_node_sends_its_jobs_elsewhere(before: tuple[JobInput, ...]) -> None:
    job, effects = told(after(new_job(), assigned(), NodeFenced("n1", fenced=True), *before), NodeGone("n1"))
    assert (job.state, job.node_id, job.run_active) == (JobState.PENDING, "", False)
    assert effects[0] == WithdrawRun("n1", "j1-1")


@pytest.mark.parametrize("words", [(), (NodeFenced("n2", fenced=True),), (NodeFenced("n1", fenced=True), UNFENCED)])
def test_a_run_that_may_go_on_without_us_is_never_started_elsewhere(words: tuple[JobInput, ...]) -> None:
    job, effects = told(after(running_job(), *words, NodeSilent("n1")), NodeGone("n1"))
    assert (job.state, job.node_id, job.run_active) == (JobState.DISCONNECTED, "n1", True)
    assert "goes on when the node is back; cancel it if that will never be" in job.reason
    assert not [effect for effect in effects if isinstance(effect, WithdrawRun)]
    assert after(job, RunIsAlive("j1-1")).state is JobState.RUNNING
    cancelled = after(job, CancelRequested())
    assert (cancelled.state, cancelled.run_active) == (JobState.CANCELLED, False)


def test_the_next_run_is_not_fenced_until_its_node_says_so() -> None:
    lost = after(running_job(), NodeFenced("n1", fenced=True), LOST, assigned("n2", attempt=2))
    assert not run_of(lost).fenced
    assert run_of(after(lost, NodeFenced("n2", fenced=True))).fenced


def test_a_gone_node_ends_what_was_being_stopped() -> None:
    job, effects = told(after(running_job(), CancelRequested()), NodeGone("n1"))
    assert (job.state, job.run_active, job.finished_at) == (JobState.CANCELLED, False, AT + 10)
    assert effects[-1] == Reschedule("exit")


def test_a_gone_node_with_an_undelivered_model_means_training_again() -> None:
    job = after(running_job(), report(0.85), CLEAN_EXIT, NodeGone("n1"))
    assert (job.state, job.stop_outcome, job.tiers[0].state) == (JobState.PENDING, None, TierState.REACHED)
    again = after(job, assigned("n2", attempt=2), RunIsAlive("j1-2"))
    assert again.state is JobState.RUNNING


def test_a_gone_node_fails_the_deliveries_of_finished_jobs() -> None:
    job = after(running_job(), report(0.85), RunExited("j1-1", 1))
    assert told(job, NodeGone("n1")) == (job, [AbandonDelivery(job.tiers[0], "node n1 is gone")])


def test_a_disconnected_job_that_is_to_stop_is_told_when_its_node_is_back() -> None:
    job = after(running_job(), report(0.95), delivered(1), NodeSilent("n1"), delivered(2))
    assert (job.state, job.stop_outcome) == (JobState.DISCONNECTED, JobState.COMPLETED)
    assert after(job, RunIsAlive("j1-1")).state is JobState.STOPPING
    assert after(job, CLEAN_EXIT).state is JobState.COMPLETED


# --- After a restart of the broker ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "state", "effects"),
    [
        (new_job(), JobState.PENDING, []),
        (after(new_job(), assigned()), JobState.DISCONNECTED, [DeclareRun]),
        (running_job(), JobState.DISCONNECTED, [DeclareRun]),
        (after(running_job(), CancelRequested()), JobState.STOPPING, [DeclareRun]),
        (after(running_job(), report(0.85)), JobState.DISCONNECTED, [DeclareRun, RequestDelivery]),
        (after(running_job(), report(0.85), CLEAN_EXIT), JobState.STOPPING, [RequestDelivery]),
        (after(running_job(), report(0.85), LOST), JobState.PENDING, [RequestDelivery]),
        (final_job(JobState.COMPLETED), JobState.COMPLETED, []),
    ],
)
def test_a_restart_takes_up_what_was_under_way(job: Job, state: JobState, effects: list[type[Any]]) -> None:
    resumed, todo = machine.after_restart(job)
    assert resumed.state is state
    assert [type(effect) for effect in todo if not isinstance(effect, Announce)] == effects
    assert machine.after_restart(resumed)[0] == resumed, "a second restart finds nothing new"
