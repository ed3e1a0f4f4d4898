"""The life of a job, edge by edge: from submission to its end."""

from __future__ import annotations

import math

import pytest

from testing.jobs import (
    AT,
    CLEAN_EXIT,
    LOST,
    SHARE,
    after,
    assigned,
    delivered,
    failed,
    final_job,
    make_spec,
    new_job,
    report,
    run_of,
    running_job,
    states,
    told,
)
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import (
    AbandonDelivery,
    Announce,
    CancelRequested,
    DeclareRun,
    Deferred,
    JobInput,
    NodeSilent,
    Reported,
    RequestDelivery,
    Reschedule,
    RunExited,
    RunIsAlive,
    RunUnknown,
    ShareUpdated,
    Ticked,
    TierFeasibilityChanged,
    UsageMeasured,
    WithdrawRun,
)
from tiercel.broker.lifecycle.report_bounds import MAX_METRICS
from tiercel.core.data_sets import DataSet
from tiercel.core.errors import IllegalTransitionError
from tiercel.core.events import ProgressMade, ShareChanged, StateChanged, TierChanged
from tiercel.core.jobs import Direction, JobState, Tier, TierState
from tiercel.core.runs import Silence
from tiercel.core.shares import Share

# --- From submission to running ---------------------------------------------------------------------------------------


def test_a_new_job_waits_and_wakes_the_scheduler() -> None:
    job, effects = machine.create("j1", "alice", make_spec(), AT, "key")
    assert (job.state, job.attempts, job.run_active, job.run_id) == (JobState.PENDING, 0, False, "")
    assert [tier.number for tier in job.tiers] == [1, 2]
    assert list(effects) == [Announce(StateChanged(JobState.PENDING, job.reason)), Reschedule("arrival")]


def test_placement_starts_the_first_run() -> None:
    job, effects = told(new_job(), assigned())
    assert (job.state, job.node_id, job.share, job.run_id, job.run_active) == (
        JobState.STARTING,
        "n1",
        SHARE,
        "j1-1",
        True,
    )
    assert effects[1:] == [Announce(ShareChanged("n1", SHARE)), DeclareRun()]
    assert states(effects) == [JobState.STARTING]


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_placement_that_comes_late_changes_nothing(attempt: int) -> None:
    job = after(new_job(), assigned())
    assert told(job, assigned("n2", attempt=attempt)) == (job, [])


def test_a_late_placement_does_not_start_a_requeued_job() -> None:
    """A plan made while the first run still existed must not place the job again on a node that may be gone."""
    job = after(running_job(), LOST)
    assert told(job, assigned("n1", attempt=1)) == (job, [])
    assert told(job, ShareUpdated("j1-1", Share(0.1))) == (job, [])


def test_a_second_run_while_the_first_may_exist_is_a_defect() -> None:
    with pytest.raises(IllegalTransitionError, match="job j1 is running"):
        after(running_job(), assigned("n2", attempt=2))


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_a_placement_of_a_finished_job_changes_nothing(outcome: JobState) -> None:
    job = final_job(outcome)
    assert told(job, assigned(attempt=2)) == (job, [])


def test_waiting_says_why_once() -> None:
    job, effects = told(new_job(), Deferred("no room"))
    assert (job.state, job.reason) == (JobState.PENDING, "no room")
    assert states(effects) == [JobState.PENDING]
    assert told(job, Deferred("no room")) == (job, [])
    running = running_job()
    assert told(running, Deferred("no room")) == (running, [])


def test_a_living_run_makes_the_job_run() -> None:
    job, effects = told(after(new_job(), assigned()), RunIsAlive("j1-1"), now=AT + 5)
    assert (job.state, job.started_at, run_of(job).silence) == (JobState.RUNNING, AT + 5, Silence(AT + 5, AT + 5))
    assert states(effects) == [JobState.RUNNING]
    assert told(job, RunIsAlive("j1-1"), now=AT + 50) == (job, [])


@pytest.mark.parametrize(
    "message",
    [
        RunIsAlive("j1-0"),
        RunIsAlive("j2-1"),
        RunUnknown("j1-0"),
        UsageMeasured("j1-0", 5.0),
        report(0.99, run_id="j1-0"),
        ShareUpdated("j1-0", Share(0.1)),
    ],
)
def test_what_is_said_of_another_run_changes_nothing(message: JobInput) -> None:
    job = running_job()
    assert told(job, message) == (job, [])


def test_another_share_is_announced_and_declared() -> None:
    share = Share(0.25, 1.5, "less")
    job, effects = told(running_job(), ShareUpdated("j1-1", share))
    assert job.share == share
    assert effects == [Announce(ShareChanged("n1", share)), DeclareRun()]
    assert told(job, ShareUpdated("j1-1", Share(0.25, 1.5, "other words"))) == (job, [])


def test_usage_never_goes_back() -> None:
    job = after(running_job(), UsageMeasured("j1-1", 5.0), UsageMeasured("j1-1", 3.0))
    assert job.cpu_seconds == 5.0


def test_usage_adds_up_over_runs() -> None:
    job = after(running_job(), UsageMeasured("j1-1", 5.0), LOST, assigned(attempt=2), RunIsAlive("j1-2"))
    assert after(job, UsageMeasured("j1-2", 2.0)).cpu_seconds == 7.0


# --- Reports and tiers ------------------------------------------------------------------------------------------------


def test_a_report_is_news() -> None:
    job, effects = told(running_job(), report(0.5, cpu=1.5, epoch=3), now=AT + 10)
    assert (job.epoch, job.latest_value, job.best_value, job.cpu_seconds) == (3, 0.5, 0.5, 1.5)
    assert run_of(job).silence == Silence(AT + 10, AT + 10)
    assert effects == [Announce(ProgressMade(3, 0.5, {"accuracy": 0.5}, 1.5))]


def test_a_report_is_taken_in_once() -> None:
    job = after(running_job(), report(0.5, sequence=3))
    assert told(job, report(0.95, sequence=3)) == (job, [])
    assert told(job, report(0.95, sequence=2)) == (job, [])


def test_the_best_value_is_kept() -> None:
    job = after(running_job(), report(0.7, sequence=1), report(0.6, sequence=2))
    assert (job.latest_value, job.best_value) == (0.6, 0.7)
    falling = running_job(direction=Direction.MIN, tiers=(Tier(0.3),))
    assert after(falling, report(0.6, sequence=1), report(0.7, sequence=2)).best_value == 0.6


def test_the_first_report_that_meets_a_target_reaches_the_tier() -> None:
    job, effects = told(running_job(), report(0.8, at=AT + 7))
    first, second = job.tiers
    assert (first.state, first.reached_value, first.reached_seconds) == (TierState.REACHED, 0.8, 7.0)
    assert second.state is TierState.PENDING
    assert effects[1:] == [Announce(TierChanged(first)), RequestDelivery(first), Reschedule("tier")]


def test_one_report_may_reach_several_tiers() -> None:
    job, effects = told(running_job(), report(0.95))
    assert [tier.state for tier in job.tiers] == [TierState.REACHED] * 2
    assert [effect.tier.number for effect in effects if isinstance(effect, RequestDelivery)] == [1, 2]


def test_a_tier_is_reached_for_good() -> None:
    job = after(running_job(), report(0.85))
    later, effects = told(job, report(0.2, sequence=2))
    assert later.tiers == job.tiers
    assert not [effect for effect in effects if isinstance(effect, RequestDelivery)]


def test_a_node_whose_clock_is_wrong_dates_nothing_later_than_now() -> None:
    job = after(running_job(), report(0.85, at=AT + 1e6), now=AT + 10)
    assert job.tiers[0].reached_seconds == 10.0
    assert after(running_job(), report(0.85, at=0.0)).tiers[0].reached_seconds == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_fails_the_job_in_plain_words(value: float) -> None:
    job, effects = told(running_job(), report(value, epoch=4))
    assert (job.state, job.stop_outcome, job.run_active) == (JobState.STOPPING, JobState.FAILED, True)
    assert "epoch 4 reported accuracy" in job.reason
    assert "diverged" in job.reason
    assert effects[-1] == DeclareRun()
    assert after(job, RunExited("j1-1", -15, log_tail="last line")).log_tail == "last line"


def test_a_missing_metric_fails_the_job_and_says_what_came_instead() -> None:
    job = after(running_job(), Reported("j1-1", 1, 1, {"loss": 0.1}, AT, 0.0))
    assert job.stop_outcome is JobState.FAILED
    assert "reported loss, but the tiers are about 'accuracy'" in job.reason


def test_a_flood_of_metrics_is_cut() -> None:
    metrics = {f"m{number}": 0.0 for number in range(500)} | {"accuracy": 0.5}
    _, effects = told(running_job(), Reported("j1-1", 1, 1, metrics, AT, 0.0))
    (change,) = [effect.change for effect in effects if isinstance(effect, Announce)]
    assert isinstance(change, ProgressMade)
    assert len(change.metrics) == MAX_METRICS
    assert change.metrics["accuracy"] == 0.5


def test_names_of_metrics_without_bounds_get_no_further_than_the_job() -> None:
    metrics = {"x" * 1_000_000: 0.0, "two words": 0.0, "loss": 0.1}
    _, effects = told(running_job(), Reported("j1-1", 1, 1, {**metrics, "accuracy": 0.5}, AT, 0.0))
    change = next(e.change for e in effects if isinstance(e, Announce) and isinstance(e.change, ProgressMade))
    assert change.metrics == {"accuracy": 0.5, "loss": 0.1}
    job = after(running_job(), Reported("j1-1", 1, 1, metrics, AT, 0.0))
    assert job.stop_outcome is JobState.FAILED
    assert "reported loss, but the tiers" in job.stop_reason


def test_a_job_that_is_being_stopped_reaches_nothing() -> None:
    job, effects = told(after(running_job(), CancelRequested()), report(0.95))
    assert [tier.state for tier in job.tiers] == [TierState.PENDING] * 2
    assert not [effect for effect in effects if isinstance(effect, RequestDelivery)]


@pytest.mark.parametrize("end", [CLEAN_EXIT, LOST])
def test_a_report_after_the_run_has_ended_changes_nothing(end: RunExited) -> None:
    job = after(running_job(), report(0.85), end)
    assert told(job, report(math.nan, sequence=2)) == (job, [])
    assert told(job, report(0.95, sequence=3)) == (job, [])


def test_out_of_reach_is_told_once_and_taken_back() -> None:
    job, effects = told(running_job(), TierFeasibilityChanged("it has flattened out"))
    assert job.tiers[0].state is TierState.UNREACHABLE
    assert effects == [Announce(TierChanged(job.tiers[0]))]
    assert told(job, TierFeasibilityChanged("it has flattened out, 3 % later")) == (job, [])
    assert after(job, TierFeasibilityChanged("")).tiers[0].state is TierState.PENDING


def test_a_tier_that_was_out_of_reach_can_be_reached() -> None:
    job = after(running_job(), TierFeasibilityChanged("too far"), report(0.85))
    assert (job.tiers[0].state, job.tiers[0].reason) == (TierState.REACHED, "")
    assert after(job, TierFeasibilityChanged("too far")).tiers[1].state is TierState.UNREACHABLE


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_nobody_judges_a_finished_job(outcome: JobState) -> None:
    job = final_job(outcome)
    assert told(job, TierFeasibilityChanged("too far")) == (job, [])


# --- Deliveries and the end -------------------------------------------------------------------------------------------


def test_a_delivered_tier_says_when_and_as_what() -> None:
    job, effects = told(after(running_job(), report(0.85)), delivered(1, value=0.84, at=AT + 8))
    tier = job.tiers[0]
    assert (tier.state, tier.version, tier.delivered_value, tier.delivered_seconds) == (
        TierState.DELIVERED,
        1,
        0.84,
        8.0,
    )
    # It kept its place for the hand-over, which others wait for.
    assert effects == [Announce(TierChanged(tier)), Reschedule("tier")]
    assert told(job, delivered(1, value=0.1)) == (job, [])
    assert told(job, failed(1)) == (job, [])


def test_a_tier_that_was_not_reached_cannot_be_delivered() -> None:
    job = running_job()
    assert told(job, delivered(1)) == (job, [])


def test_the_last_delivery_stops_the_run_and_completes_the_job() -> None:
    job, effects = told(after(running_job(), report(0.95), delivered(1)), delivered(2))
    assert (job.state, job.stop_outcome) == (JobState.STOPPING, JobState.COMPLETED)
    assert effects[-1] == DeclareRun()
    done, effects = told(job, RunExited("j1-1", -15), now=AT + 20)
    assert (done.state, done.reason, done.finished_at) == (JobState.COMPLETED, "all 2 tiers delivered", AT + 20)
    assert effects[0] == WithdrawRun("n1", "j1-1")
    assert effects[-1] == Reschedule("exit")


def test_what_happens_while_a_finished_run_is_stopped_does_not_spoil_it() -> None:
    stopping = after(running_job(), report(0.95), delivered(1), delivered(2))
    for message in (report(math.nan, sequence=2), CancelRequested(), Ticked()):
        assert after(stopping, message, RunExited("j1-1", -9), now=AT + 9e9).state is JobState.COMPLETED


def test_training_may_go_on_after_the_last_tier() -> None:
    job = after(running_job(continue_after_last_tier=True), report(0.95), delivered(1), delivered(2))
    assert job.state is JobState.RUNNING
    assert after(job, CLEAN_EXIT).state is JobState.COMPLETED


# --- Cancelling -------------------------------------------------------------------------------------------------------


def test_cancelling_a_waiting_job_ends_it_at_once() -> None:
    job, effects = told(new_job(), CancelRequested())
    assert (job.state, job.finished_at, job.reason) == (JobState.CANCELLED, AT + 10, "cancelled")
    assert effects[-1] == Reschedule("exit")


@pytest.mark.parametrize("alive", [(), (RunIsAlive("j1-1"),)])
def test_cancelling_waits_for_the_exit(alive: tuple[JobInput, ...]) -> None:
    job, effects = told(after(new_job(), assigned(), *alive), CancelRequested())
    assert (job.state, job.run_active) == (JobState.STOPPING, True)
    assert effects[-1] == DeclareRun()
    assert told(job, CancelRequested()) == (job, [])
    assert after(job, RunExited("j1-1", 1)).state is JobState.CANCELLED


def test_cancelling_a_disconnected_job_does_not_wait_for_its_node() -> None:
    job, effects = told(after(running_job(), NodeSilent("n1")), CancelRequested())
    assert (job.state, job.run_active) == (JobState.CANCELLED, False)
    assert effects[0] == WithdrawRun("n1", "j1-1")
    assert "its node will stop it" in job.reason


def test_cancelling_does_not_hide_a_failure() -> None:
    job = after(running_job(), report(math.nan), CancelRequested(), RunExited("j1-1", 0))
    assert job.state is JobState.FAILED


def test_cancelling_while_the_last_model_is_delivered_ends_the_job_but_not_the_delivery() -> None:
    job = after(running_job(), report(0.85), CLEAN_EXIT, CancelRequested())
    assert (job.state, job.tiers[0].state) == (JobState.CANCELLED, TierState.REACHED)
    assert after(job, delivered(1)).tiers[0].state is TierState.DELIVERED


def test_cancelling_abandons_what_no_node_can_deliver() -> None:
    waiting = after(running_job(), report(0.85), LOST)
    job, effects = told(waiting, CancelRequested())
    assert job.state is JobState.CANCELLED
    assert AbandonDelivery(waiting.tiers[0], "cancelled") in effects


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_cancelling_a_finished_job_changes_nothing(outcome: JobState) -> None:
    job = final_job(outcome)
    assert told(job, CancelRequested()) == (job, [])


def test_what_came_of_the_urls_of_its_data_is_remembered_as_far_as_it_can_be() -> None:
    data = (DataSet("digits", "https://example.org/x"), DataSet("table"))
    told_of = {"digits": "a" * 64, "table": "b" * 64, "unasked": "c" * 64}
    job = after(new_job(data=data), assigned(), RunIsAlive("j1-1", data_sha256=told_of))
    assert job.data_sha256 == {"digits": "a" * 64}
    assert after(new_job(data=data), assigned(), RunIsAlive("j1-1", data_sha256={"digits": "x"})).data_sha256 == {}
