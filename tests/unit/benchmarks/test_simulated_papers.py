from __future__ import annotations

from typing import Any

import pytest

from benchmarks.paper_schedules import Schedule, flowcon_schedules, specon_schedules, tradl_schedules
from benchmarks.simulated_papers import (
    OURS,
    PAPERS,
    RIVALS,
    SHOWN_BY,
    Gains,
    Setting,
    bars_of,
    best_rows,
    best_setting,
    gains,
    measure,
    row,
    settings_of,
    with_penalty,
)
from tiercel.broker.scheduling.registry import create_policy
from tiercel.broker.simulation import simulate

SCHEDULES = (*flowcon_schedules(), *tradl_schedules(), *specon_schedules())


@pytest.mark.parametrize("policy", RIVALS)
def test_every_setting_is_one_that_the_policy_takes(policy: str) -> None:
    settings = RIVALS[policy]
    for setting in settings:
        assert create_policy(setting.policy, dict(setting.options)).name == policy
    assert settings[0] == Setting(policy)
    assert len(set(settings)) == len(settings)


def test_a_grid_has_every_combination() -> None:
    found = settings_of("flowcon", {"alpha": (0.1, 0.2), "interval": (1.0, 2.0)})
    assert len(found) == 5
    assert found[-1].words == "alpha=0.2, interval=2.0"
    assert found[0].words == "defaults"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_a_schedule_is_the_same_each_time_and_differs_by_seed(schedule: Schedule) -> None:
    first, again = (schedule.jobs.draw(3) for _ in range(2))
    assert first == again
    assert [job.arrives_at for job in first] == sorted(job.arrives_at for job in first)
    if "apart" not in schedule.name:
        assert schedule.jobs.draw(4) != first


@pytest.mark.parametrize("schedule", [flowcon_schedules()[0], tradl_schedules()[0]], ids=lambda schedule: schedule.name)
def test_whoever_schedules_them_all_jobs_reach_their_tiers(schedule: Schedule) -> None:
    for history in (False, True):
        assert simulate(schedule.scenario(history=history), "fair", 1).missed_tiers() == 0
    assert simulate(schedule.scenario(history=True), "utility", 1).missed_tiers() == 0


def test_fair_gains_nothing_over_itself() -> None:
    scenario = flowcon_schedules()[0].scenario(history=False)
    fair = simulate(scenario, "fair", 1)
    assert set(gains(fair, fair).values()) == {0.0}


def test_gains_are_parts_below_fair() -> None:
    scenario = tradl_schedules()[0].scenario(history=False)
    fair, fifo = simulate(scenario, "fair", 1), simulate(scenario, "fifo", 1)
    found = gains(fifo, fair)
    assert found["mean_finish"] == pytest.approx(1 - fifo.mean_completion / fair.mean_completion)
    assert found["best_finish"] >= found["mean_finish"] >= found["worst_finish"]
    assert found["best_tier_1"] >= found["mean_tier_1"] > 0


def test_all_settings_meet_the_same_jobs() -> None:
    schedule = flowcon_schedules()[0]
    first, second = measure((schedule, (Setting("fair"), Setting("flowcon", (("no_update", True),))), 2))
    assert first == second


def _gains(finish: float) -> Gains:
    return {"best_finish": finish, "makespan": -0.05, "mean_finish": 0.0, "worst_finish": -0.51}


def test_the_setting_that_gains_most_is_shown() -> None:
    good, bad = Setting("flowcon", (("alpha", 0.1),)), Setting("flowcon")
    found = {bad: [_gains(0.1), _gains(0.3)], good: [_gains(0.2), _gains(0.4)], Setting("utility"): [_gains(0.9)]}
    assert best_setting(found, "flowcon", "best_finish") == good


def test_a_bar_is_missed_where_the_papers_scheduler_is_ahead_or_the_makespan_longer() -> None:
    rows = {"flowcon": row([_gains(0.4)]), **{arm: row([_gains(0.3)]) for arm in OURS}}
    assert _holds(rows) == [False, False, False] * len(OURS)
    better = {**_gains(0.3), "makespan": -0.01, "worst_finish": -0.5}
    rows = {"flowcon": row([_gains(0.2)]), **{arm: row([better]) for arm in OURS}}
    assert _holds(rows) == [True, True, True] * len(OURS)


def _holds(rows: dict[str, Any]) -> list[bool]:
    paper = {"measure": "best_finish", "schedules": {"a schedule": rows}}
    return [bar.holds for bar in bars_of({"seeds": 1, "flowcon": paper})]


def test_a_rival_is_shown_in_each_measure_with_the_setting_that_does_best_by_it() -> None:
    fast, fair = Setting("flowcon", (("alpha", 0.1),)), Setting("flowcon")
    one = dict.fromkeys(SHOWN_BY, 0.0)
    found: dict[Setting, list[Gains]] = {
        fair: [one | {"best_finish": 0.1, "makespan": 0.2}],
        fast: [one | {"best_finish": 0.3, "makespan": -0.1}],
    }
    shown = best_rows(found, "flowcon")
    assert (shown["best_finish"]["mean"], shown["makespan"]["mean"]) == (0.3, 0.2)
    assert (shown["settings"]["best_finish"], shown["settings"]["makespan"]) == ("alpha=0.1", "defaults")


def test_the_cost_of_sharing_can_be_swept() -> None:
    for paper in PAPERS:
        for schedule, costly in zip(with_penalty(paper, 0.0).schedules, paper.schedules, strict=True):
            machines = schedule.scenario(history=False).machines
            assert machines.colocation.penalty == 0
            assert machines.checkpoint_seconds == costly.machines.checkpoint_seconds
    schedules = (PAPERS[0].schedules[0], with_penalty(PAPERS[0], 0.0).schedules[0])
    fair, cheap = (simulate(each.scenario(history=False), "fair", 1) for each in schedules)
    assert cheap.mean_completion < fair.mean_completion
