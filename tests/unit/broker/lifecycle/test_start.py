"""What it takes a run to get to work, by the broker's clock: told by nobody but measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.jobs import AT, LOST, SHARE, after, assigned, new_job, report, run_of
from tiercel.broker.lifecycle.job_events import (
    JobInput,
    MoveOrdered,
    NodeSilent,
    RunExited,
    RunIsAlive,
    RunUnknown,
    ShareUpdated,
)
from tiercel.broker.lifecycle.machine import after_restart
from tiercel.core.jobs import Job, JobState, Resources
from tiercel.core.shares import Share
from tiercel.core.starts import LONGEST_SECONDS, STARTS_KEPT, Start
from tiercel.core.storage import from_json, to_json

FULL = Share(1.0, reason="all of it")


def at(job: Job, seconds: float, *inputs: JobInput) -> Job:
    """The job after it was told all this so many seconds after its start was ordered."""
    return after(job, *inputs, now=AT + seconds)


def begun(cpu_seconds: float, *, run_id: str = "j1-1", warm: bool = False) -> RunIsAlive:
    return RunIsAlive(run_id, begun_cpu_seconds=cpu_seconds, warm=warm)


def ordered(share: Share = FULL, **changes: object) -> Job:
    return at(new_job(**changes), 0.0, replace(assigned(), share=share))


def test_from_the_order_to_the_moment_in_which_it_trains() -> None:
    job = at(at(ordered(), 0.5, RunIsAlive("j1-1")), 2.5, begun(1.9))
    assert job.starts == (Start("n1", 2.5, 1.9),)
    assert job.state is JobState.RUNNING


def test_both_may_be_said_at_once_and_again() -> None:
    job = at(at(ordered(), 0.0625, begun(0.02, warm=True)), 9.0, begun(0.02, warm=True), begun(8.0))
    assert job.starts == (Start("n1", 0.0625, 0.02, warm=True),)


def test_what_a_small_share_made_longer_does_not_count() -> None:
    job = at(ordered(replace(FULL, speed=0.1)), 1.0, RunIsAlive("j1-1"))
    (start,) = at(job, 21.0, begun(1.5)).starts
    assert start.seconds == pytest.approx(3.0)  # a second to prepare, and two at full speed
    # All it can know is the least that it could use: what it did use says more.
    (start,) = at(job, 21.0, begun(15.0)).starts
    assert start.seconds == pytest.approx(15.0)
    sped_up = at(job, 11.0, ShareUpdated("j1-1", Share(0.5, reason="half, with which it is as fast")))
    assert at(sped_up, 12.0, begun(1.5)).starts[0].seconds == pytest.approx(3.0)


@pytest.mark.parametrize("claimed", [-1.0, 1e12, math.inf, math.nan])
def test_what_is_said_is_bounded_by_what_can_be(claimed: float) -> None:
    job = at(ordered(resources=Resources(cpu_cores=2.0)), 4.0, begun(claimed))
    for start in job.starts:
        assert 0.0 <= start.cpu_seconds <= 8.0
        assert start.seconds == 4.0
    assert len(job.starts) == math.isfinite(claimed)


def test_a_start_never_counts_for_longer_than_some_minutes() -> None:
    (start,) = at(ordered(), 86_400.0, begun(86_400.0)).starts
    assert (start.seconds, start.cpu_seconds) == (LONGEST_SECONDS, LONGEST_SECONDS)


@pytest.mark.parametrize("meanwhile", [NodeSilent("n1"), RunUnknown("j1-1")])
def test_a_start_in_which_the_node_was_away_is_not_measured(meanwhile: JobInput) -> None:
    job = at(at(ordered(), 1.0, meanwhile), 9.0, RunIsAlive("j1-1"), begun(1.0))
    assert job.starts == ()
    assert job.state is JobState.RUNNING


def test_a_start_in_which_the_broker_was_away_is_not_measured() -> None:
    job, _ = after_restart(from_json(Job, to_json(ordered())))
    assert at(job, 9.0, begun(1.0)).starts == ()


def moved(job: Job) -> Job:
    job = at(job, 2.0, begun(2.0), report(0.5))
    job = at(job, 10.0, MoveOrdered("n2", SHARE, 2))
    return at(job, 10.7, RunExited("j1-1", -15, carried=True))


def test_the_price_of_a_move_is_the_stop_and_the_start() -> None:
    job = at(moved(ordered()), 10.8, begun(0.05, run_id="j1-2", warm=True))
    first, second = job.starts
    assert first == Start("n1", 2.0, 2.0)
    assert (second.node_id, second.warm, second.cpu_seconds) == ("n2", True, 0.05)
    assert second.seconds == pytest.approx(0.1)
    assert second.stop_seconds == pytest.approx(0.7)
    assert from_json(Job, to_json(job)).starts == job.starts


def test_a_stop_in_which_the_node_was_away_is_not_measured() -> None:
    job = at(ordered(), 2.0, begun(2.0), report(0.5))
    job = at(job, 10.0, MoveOrdered("n2", SHARE, 2), NodeSilent("n1"))
    job = at(job, 70.0, RunExited("j1-1", -15, carried=True), begun(2.0, run_id="j1-2"))
    assert job.starts[-1].stop_seconds is None
    assert run_of(job).node_id == "n2"


def test_a_run_that_is_told_to_leave_before_it_trains_tells_nothing_of_its_start() -> None:
    job = at(ordered(), 2.0, report(0.5))  # of an agent that does not say when it began
    job = at(job, 10.0, MoveOrdered("n2", SHARE, 2), begun(5.0))
    assert job.starts == ()


def test_what_is_kept_of_a_job_is_bounded() -> None:
    job = ordered()
    for number in range(1, STARTS_KEPT + 3):
        job = at(job, 0.0, replace(assigned(attempt=number)))
        job = at(job, number, begun(0.0, run_id=f"j1-{number}"), replace(LOST, run_id=f"j1-{number}"))
        job = replace(job, earlier=replace(job.earlier, lost_at=()))
    assert [start.seconds for start in job.starts] == [3.0, 4.0, 5.0, 6.0, 7.0]
