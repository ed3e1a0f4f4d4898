"""What the live view makes of events."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tiercel.broker.cli.job_view import WatchedJob, event_line
from tiercel.broker.client import JobEvent, JobInfo, ProgressEvent, ShareEvent, StateEvent, TierEvent, TierStatus
from tiercel.core.jobs import Direction, JobSpec, JobState, Tier, TierState
from tiercel.core.shares import Share

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ABOUT = (1, "j1", "default", AT)


def tier(number: int, target: float, state: TierState = TierState.PENDING, version: int | None = None) -> TierStatus:
    return TierStatus(number, Tier(target), state, version=version)


def job(direction: Direction = Direction.MAX, targets: tuple[float, ...] = (0.8, 0.9)) -> JobInfo:
    spec = JobSpec("digits", "digits", "m", direction, tuple(Tier(target) for target in targets))
    return JobInfo(
        id="j1",
        tenant="default",
        spec=spec,
        state=JobState.PENDING,
        reason="",
        submitted_at=AT,
        started_seconds=None,
        finished_seconds=None,
        tiers=tuple(tier(number, target) for number, target in enumerate(targets, 1)),
        epoch=0,
        latest_value=None,
        best_value=None,
        node_id="",
        share=None,
        cpu_seconds=0.0,
        attempts=0,
        log_tail="",
    )


def progress(value: float, epoch: int = 1) -> ProgressEvent:
    return ProgressEvent(*ABOUT, epoch, value, {"m": value}, 2.0)


def after(view: WatchedJob, *events: JobEvent) -> WatchedJob:
    for event in events:
        view = view.after(event)
    return view


def test_each_kind_of_event_moves_its_part() -> None:
    view = after(
        WatchedJob(job()),
        StateEvent(*ABOUT, JobState.RUNNING, "It runs."),
        ShareEvent(*ABOUT, "n1", Share(0.5)),
        progress(0.5, epoch=3),
        TierEvent(*ABOUT, tier(2, 0.9, TierState.DELIVERED, version=4)),
    )

    assert (view.job.state, view.job.reason) == (JobState.RUNNING, "It runs.")
    assert (view.job.node_id, view.job.share) == ("n1", Share(0.5))
    assert (view.job.epoch, view.job.latest_value, view.job.cpu_seconds) == (3, 0.5, 2.0)
    assert [tier.version for tier in view.job.tiers] == [None, 4]


@pytest.mark.parametrize(
    ("direction", "values", "best"), [(Direction.MAX, (0.1, 0.5, 0.3), 0.5), (Direction.MIN, (9, 3, 4), 3)]
)
def test_the_best_value_is_kept(direction: Direction, values: tuple[float, ...], best: float) -> None:
    view = after(WatchedJob(job(direction)), *map(progress, values))

    assert (view.job.best_value, view.job.latest_value) == (best, values[-1])


@pytest.mark.parametrize(
    ("direction", "target", "values", "fraction"),
    [
        (Direction.MAX, 0.8, (), 0.0),
        (Direction.MAX, 0.8, (0.4,), 0.0),
        (Direction.MAX, 0.8, (0.4, 0.6), 0.5),
        (Direction.MAX, 0.8, (0.4, 0.9), 1.0),
        (Direction.MAX, 0.8, (0.9,), 1.0),
        (Direction.MIN, 1.0, (5.0, 2.0), 0.75),
        (Direction.MIN, 1.0, (5.0, 7.0), 0.0),
    ],
)
def test_how_much_of_the_way_is_done(
    direction: Direction, target: float, values: tuple[float, ...], fraction: float
) -> None:
    view = after(WatchedJob(job(direction, (target,))), *map(progress, values))

    assert view.fraction(view.job.tiers[0]) == pytest.approx(fraction)


@pytest.mark.parametrize("state", [TierState.REACHED, TierState.DELIVERED])
def test_a_tier_that_was_reached_is_full(state: TierState) -> None:
    view = WatchedJob(job())

    assert view.fraction(tier(1, 0.8, state)) == 1.0


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (StateEvent(*ABOUT, JobState.FAILED, "It \x1bcrashed."), "failed: It \ufffdcrashed."),
        (StateEvent(*ABOUT, JobState.RUNNING, ""), "running"),
        (progress(0.25, epoch=7), "epoch 7: 0.25"),
        (TierEvent(*ABOUT, tier(1, 0.8, TierState.REACHED)), "tier 1 (0.8) reached"),
        (TierEvent(*ABOUT, tier(1, 0.8, TierState.DELIVERED, 2)), "tier 1 (0.8) delivered as version 2"),
        (ShareEvent(*ABOUT, "n1", Share(0.25, None, "Four jobs.")), "share 25 % of n1: Four jobs."),
    ],
)
def test_an_event_as_a_line(event: JobEvent, text: str) -> None:
    assert event_line(event, "digits").endswith(f"  j1  digits  {text}")
