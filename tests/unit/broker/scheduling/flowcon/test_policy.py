from __future__ import annotations

import dataclasses
import math

import pytest

from testing.scheduling import job, node, snapshot, weights
from tiercel.broker.scheduling.flowcon.lists import FlowconList
from tiercel.broker.scheduling.flowcon.policy import (
    FlowconMode,
    FlowconPolicy,
    FlowconSettings,
    FlowconState,
    weights_under,
)
from tiercel.broker.scheduling.interface import JobView, NodeView, Plan
from tiercel.core.jobs import Observation
from tiercel.core.shares import Share

ALPHA, INTERVAL = 0.03, 10.0


def learner(job_id: str, rate: float, now: float, *, begin: float = 0.0, cores: float = 1.0) -> JobView:
    """A loss of ``exp(-rate * t)``, reported each second since it began, with so many cores in use."""
    count = max(int(now - begin) + 1, 0)
    seen = tuple(
        Observation(begin + second, second, math.exp(-rate * second), cores * second) for second in range(count)
    )
    return job(job_id, observations=seen)


def follow(
    settings: FlowconSettings, rates: dict[str, float], times: list[float], nodes: list[NodeView] | None = None
) -> list[tuple[Plan, FlowconState]]:
    """What the policy says at each time of jobs that all began at zero."""
    policy = FlowconPolicy(settings)
    state = policy.initial_state()
    steps = []
    for now in times:
        jobs = [learner(name, rate, now) for name, rate in rates.items()]
        plan, state = policy.plan(dataclasses.replace(snapshot(jobs, nodes), now=now), state)
        steps.append((plan, state))
    return steps


def caps(plan: Plan) -> dict[str, float | None]:
    return {entry.job_id: entry.share.cpu_cap_cores for entry in plan.assignments}


SETTINGS = FlowconSettings(alpha=ALPHA, interval=INTERVAL)


def test_nothing_changes_between_passes() -> None:
    steps = follow(SETTINGS, {"a": 0.1, "b": 0.001}, [0.0, 5.0, 9.9])
    assert [weights(plan) for plan, _ in steps] == [{"a": 0.5, "b": 0.5}] * 3
    assert [plan.next_at for plan, _ in steps] == [10.0, 10.0, 10.0]


def test_a_pass_each_interval_moves_cpu_to_who_grows() -> None:
    steps = follow(SETTINGS, {"fast": 0.1, "slow": 0.001}, [0.0, 10.0, 20.0, 30.0])
    # At 10 the earlier interval is empty but for the report at 0: growth is known from 10 on.
    lists = [{name: record.list.value for name, record in state.records.items()} for _, state in steps]
    assert lists[-1] == {"fast": "new", "slow": "completing"}
    last = weights(steps[-1][0])
    assert last["fast"] > 0.6
    assert last["slow"] == pytest.approx(1 / 3, abs=0.05)
    assert steps[-1][0].next_at == 40.0


def test_caps_are_hard_in_the_literal_mode() -> None:
    settings = dataclasses.replace(SETTINGS, mode=FlowconMode.LITERAL)
    steps = follow(settings, {"fast": 0.1, "slow": 0.001}, [0.0, 10.0, 20.0, 30.0])
    first, last = caps(steps[0][0]), caps(steps[-1][0])
    assert first == {"fast": None, "slow": None}
    assert last["slow"] == pytest.approx(4 / 3, abs=0.01)  # the floor of a third of four cores
    assert last["fast"] is not None
    assert 3.5 < last["fast"] < 4.0
    assert weights(steps[-1][0]) == {"fast": 0.5, "slow": 0.5}


def test_no_update_decides_the_same_and_applies_nothing() -> None:
    rates, times = {"fast": 0.1, "slow": 0.001}, [0.0, 10.0, 20.0, 30.0]
    watched = follow(dataclasses.replace(SETTINGS, no_update=True, mode=FlowconMode.LITERAL), rates, times)
    assert [weights(plan) for plan, _ in watched] == [{"fast": 0.5, "slow": 0.5}] * 4
    assert all(cap is None for plan, _ in watched for cap in caps(plan).values())
    for (_, without), (_, applied) in zip(watched, follow(SETTINGS, rates, times), strict=True):
        assert (without.records, without.timers) == (applied.records, applied.timers)


def test_passes_back_off_while_all_are_completing() -> None:
    steps = follow(SETTINGS, {"a": 0.0001, "b": 0.0001}, [0.0, 10.0, 20.0, 40.0, 80.0])
    # Watching at 10, Completing at 20: from there 2, 4, 8 intervals
    assert [plan.next_at for plan, _ in steps] == [10.0, 20.0, 40.0, 80.0, 160.0]
    assert weights(steps[-1][0]) == {"a": 0.5, "b": 0.5}


def test_the_back_off_is_bounded() -> None:
    settings = dataclasses.replace(SETTINGS, max_factor=2)
    steps = follow(settings, {"a": 0.0001}, [0.0, 10.0, 20.0, 40.0, 60.0])
    assert [plan.next_at for plan, _ in steps] == [10.0, 20.0, 40.0, 60.0, 80.0]


def test_no_backoff_keeps_the_interval() -> None:
    settings = dataclasses.replace(SETTINGS, no_backoff=True)
    steps = follow(settings, {"a": 0.0001}, [0.0, 10.0, 20.0, 30.0])
    assert [plan.next_at for plan, _ in steps] == [10.0, 20.0, 30.0, 40.0]


def test_passes_do_not_back_off_while_one_grows() -> None:
    steps = follow(SETTINGS, {"a": 0.0001, "b": 0.1}, [0.0, 10.0, 20.0, 30.0])
    assert [plan.next_at for plan, _ in steps] == [10.0, 20.0, 30.0, 40.0]


@pytest.mark.parametrize("left", [{"a": 0.0001}, {"a": 0.0001, "b": 0.0001, "c": 0.1}])
def test_a_job_that_comes_or_goes_ends_the_back_off(left: dict[str, float]) -> None:
    policy = FlowconPolicy(SETTINGS)
    _, state = follow(SETTINGS, {"a": 0.0001, "b": 0.0001}, [0.0, 10.0, 20.0, 40.0])[-1]
    assert state.timers["node"].factor == 4
    jobs = [learner(name, rate, 42.0) for name, rate in left.items()]
    plan, state = policy.plan(dataclasses.replace(snapshot(jobs), now=42.0), state)
    assert plan.next_at == 50.0
    assert state.timers["node"].factor == 1


def test_nodes_pass_on_their_own() -> None:
    policy = FlowconPolicy(SETTINGS)
    jobs = [job("x", node_id="a"), job("y", node_id="b")]
    plan, state = policy.plan(snapshot(jobs, [node("a"), node("b")]), policy.initial_state())
    assert set(state.timers) == {"a", "b"}
    assert plan.next_at == 1010.0


def test_a_clock_that_was_put_back_stops_nothing() -> None:
    settings = dataclasses.replace(SETTINGS, no_backoff=True)
    policy = FlowconPolicy(settings)
    _, state = follow(settings, {"a": 0.1}, [0.0, 1000.0])[-1]
    plan, _ = policy.plan(dataclasses.replace(snapshot([learner("a", 0.1, 50.0)]), now=50.0), state)
    assert plan.next_at == 60.0


def test_what_is_known_of_a_job_outlives_its_nodes_absence() -> None:
    policy = FlowconPolicy(SETTINGS)
    _, state = follow(SETTINGS, {"a": 0.0001}, [0.0, 10.0, 20.0])[-1]
    lost = dataclasses.replace(learner("a", 0.0001, 21.0), node_id="gone")
    _, state = policy.plan(dataclasses.replace(snapshot([lost]), now=21.0), state)
    assert state.records["a"].list is FlowconList.COMPLETING


def test_a_newcomer_is_not_limited() -> None:
    policy = FlowconPolicy(dataclasses.replace(SETTINGS, mode=FlowconMode.LITERAL))
    _, state = follow(SETTINGS, {"a": 0.1, "b": 0.001}, [0.0, 10.0, 20.0])[-1]
    jobs = [learner("a", 0.1, 21.0), learner("b", 0.001, 21.0), job("late")]
    plan, _ = policy.plan(dataclasses.replace(snapshot(jobs), now=21.0), state)
    late = next(entry.share for entry in plan.assignments if entry.job_id == "late")
    assert late == Share(1 / 3, None, "too early to say how efficiently it improves, so it is not limited; no limit")


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        ([1.0, 1.0], [0.5, 0.5]),
        ([0.8, 1.0, 0.25], [0.375, 0.375, 0.25]),  # nobody is kept from the level of 3/8 but the last one
        ([0.2, 0.2], [0.5, 0.5]),  # 0.6 would idle
        ([0.6, 0.2], [0.75, 0.25]),
        ([1.0], [1.0]),
    ],
)
def test_weights_are_what_limits_give_and_what_they_would_waste(limits: list[float], given: list[float]) -> None:
    assert weights_under(limits) == pytest.approx(given)


@pytest.mark.parametrize(
    "fields",
    [{"alpha": -0.1}, {"alpha": math.nan}, {"beta": 0.5}, {"interval": 0.0}, {"max_factor": 0}, {"min_cap_cores": 0.0}],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least|positive"):
        FlowconSettings(**fields)  # type: ignore[arg-type] # by name
