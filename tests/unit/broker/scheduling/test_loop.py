from __future__ import annotations

import pytest

from testing.scheduling import job, node, snapshot, tiers
from tiercel.broker.scheduling.interface import Assignment, Plan, Trigger
from tiercel.broker.scheduling.loop import (
    LoopSettings,
    LoopState,
    changed_assignments,
    changed_verdicts,
    due_trigger,
    ran,
    start,
    strongest,
    triggered,
)
from tiercel.core.shares import LEAST_SPEED, AcceleratorShare, Share

SETTINGS = LoopSettings(interval_seconds=2.0, max_factor=16)


def test_the_first_run_comes_after_one_interval() -> None:
    state = start(SETTINGS, now=10.0)
    assert due_trigger(state, 11.9) is None
    assert due_trigger(state, 12.0) is Trigger.INTERVAL


def test_idle_runs_double_the_interval_up_to_its_bound() -> None:
    state, now, waits = start(SETTINGS, now=0.0), 0.0, []
    for _ in range(7):
        waits.append(state.next_at - now)
        now = state.next_at
        state = ran(state, Trigger.INTERVAL, SETTINGS, now, changed=False)
    assert waits == [2, 4, 8, 16, 32, 32, 32]


def test_a_run_that_changes_something_starts_the_interval_over() -> None:
    state = ran(LoopState(next_at=0.0, factor=8), Trigger.INTERVAL, SETTINGS, 0.0, changed=True)
    assert (state.factor, state.next_at) == (1, 2.0)


def test_a_policy_may_have_a_rhythm_of_its_own() -> None:
    idle = LoopState(next_at=0.0, factor=8)
    assert ran(idle, Trigger.INTERVAL, SETTINGS, 5.0, changed=False, next_at=35.0).next_at == 35.0
    assert ran(idle, Trigger.EXIT, SETTINGS, 5.0, changed=True, next_at=6.0).next_at == 6.0


@pytest.mark.parametrize(("wish", "granted"), [(1.0, 5.2), (500.0, 37.0)])
def test_a_policy_neither_keeps_the_loop_busy_nor_puts_it_to_sleep(wish: float, granted: float) -> None:
    state = ran(LoopState(next_at=0.0), Trigger.INTERVAL, SETTINGS, 5.0, changed=True, next_at=wish)
    assert state.next_at == pytest.approx(granted)


@pytest.mark.parametrize("changed", [True, False])
def test_an_event_runs_at_once_and_starts_the_interval_over(changed: bool) -> None:
    state = triggered(LoopState(next_at=30.0, factor=16), Trigger.EXIT, SETTINGS, now=5.0)
    assert due_trigger(state, 5.0) is Trigger.EXIT
    state = ran(state, Trigger.EXIT, SETTINGS, 5.0, changed=changed)
    assert state == LoopState(next_at=7.0, factor=1, pending=None)


def test_events_that_come_together_are_answered_by_one_run_for_the_strongest() -> None:
    settings = LoopSettings(interval_seconds=2.0, gather_seconds=0.1)
    state = triggered(start(settings, now=0.0), Trigger.NODE, settings, now=1.0)
    assert due_trigger(state, 1.05) is None
    state = triggered(state, Trigger.ARRIVAL, settings, now=1.05)
    state = triggered(state, Trigger.TIER, settings, now=1.08)
    # later events do not put the run off
    assert due_trigger(state, 1.1) is Trigger.ARRIVAL


def test_the_trigger_that_is_listed_first_is_the_strongest() -> None:
    assert strongest(None, None) is None
    assert strongest(None, Trigger.INTERVAL) is Trigger.INTERVAL
    assert strongest(Trigger.INTERVAL, Trigger.TIER) is Trigger.TIER
    assert strongest(Trigger.EXIT, Trigger.ARRIVAL) is Trigger.ARRIVAL


def test_small_changes_are_left_alone_and_a_real_one_renews_the_whole_node() -> None:
    jobs = [
        job("a", node_id="x", share=Share(0.50, reason="old")),
        job("b", node_id="x", share=Share(0.49)),
        job("c", node_id="y", share=Share(0.5)),
        job("d", node_id="y", share=Share(0.3)),
        job("e", node_id="y", share=Share(0.2)),
    ]
    plan = Plan(
        assignments=(
            Assignment("a", "x", Share(0.51, reason="new")),
            Assignment("b", "x", Share(0.48)),
            Assignment("c", "y", Share(0.4)),
            Assignment("d", "y", Share(0.31)),
            Assignment("e", "y", Share(0.2)),
        )
    )
    view = snapshot(jobs, [node("x"), node("y")])
    assert [entry.job_id for entry in changed_assignments(plan, view)] == ["c", "d"]
    assert [entry.job_id for entry in changed_assignments(plan, view, tolerance=0.0)] == ["a", "b", "c", "d"]


def test_a_new_place_or_cap_is_a_change() -> None:
    jobs = [job("new", node_id="", movable=True), job("capped", node_id="y", share=Share(0.5))]
    plan = Plan(
        assignments=(Assignment("new", "x", Share(1.0)), Assignment("capped", "y", Share(0.5, cpu_cap_cores=1.0)))
    )
    view = snapshot(jobs, [node("x"), node("y")])
    assert len(changed_assignments(plan, view)) == 2


def test_on_a_large_node_a_job_of_one_core_comes_to_the_front_all_the_same() -> None:
    """All that makes it wait or run is a 64th of the node, which was less than what was worth telling."""
    front, floor = Share(0.99 / 64), Share(0.01 / 16)
    jobs = [
        job("done", cpu_cores=1.0, share=front),
        job("next", cpu_cores=1.0, share=floor),
        job("other", cpu_cores=1.0, share=front),
    ]
    plan = Plan(
        assignments=(
            Assignment("done", "node", floor),
            Assignment("next", "node", front),
            Assignment("other", "node", front),
        )
    )
    changed = changed_assignments(plan, snapshot(jobs, [node(cpu_cores=64.0)]))
    assert [entry.job_id for entry in changed] == ["done", "next"]


@pytest.mark.parametrize(
    ("share", "cores", "node_cores", "speed"),
    [
        (Share(0.5), 1.0, 4.0, 1.0),
        (Share(0.01), 1.0, 4.0, 0.04),
        (Share(0.25), 8.0, 4.0, 0.25),
        (Share(0.5, cpu_cap_cores=0.5), 2.0, 4.0, 0.25),
        (Share(1.0, accelerators=(AcceleratorShare("gpu", 0.1, 1),)), 1.0, 4.0, 0.1),
        (Share(1e-9), 1.0, 4.0, LEAST_SPEED),
    ],
)
def test_a_share_that_is_told_says_how_fast_the_job_goes_at_least(
    share: Share, cores: float, node_cores: float, speed: float
) -> None:
    view = snapshot([job("a", cpu_cores=cores)], [node(cpu_cores=node_cores)])
    (changed,) = changed_assignments(Plan(assignments=(Assignment("a", "node", share),)), view)
    assert changed.share.speed == pytest.approx(speed)
    assert changed.share.same_limits(share)


def test_only_verdicts_that_differ_from_what_is_held_are_told() -> None:
    jobs = [
        job("held", ladder=tiers(0.9, unreachable=[1])),
        job("within", ladder=tiers(0.9)),
        job("lost", ladder=tiers(0.9)),
        job("back", ladder=tiers(0.9, unreachable=[1])),
    ]
    plan = Plan(unreachable={"held": "levels off", "lost": "stalls"})
    assert list(changed_verdicts(plan, snapshot(jobs))) == [("lost", "stalls"), ("back", "")]
