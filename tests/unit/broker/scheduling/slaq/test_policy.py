from __future__ import annotations

import math

import pytest

from testing.scheduling import job, node, reports, snapshot, tiers, waiting_job, weights
from tiercel.broker.scheduling.interface import JobView, Plan
from tiercel.broker.scheduling.rank import Stage
from tiercel.broker.scheduling.slaq.policy import SlaqPolicy, SlaqSettings, hand_out

FIRST, SECOND = Stage(0, trains=True), Stage(1, trains=True)


def test_cores_go_one_by_one_to_whom_they_gain_the_most() -> None:
    # 0.5 (a), 0.4 (b), 0.3 (a), 0.2 (c), then 0.1 (b) of which half a core is left
    gains = [(0.5, 0.3), (0.4, 0.1), (0.2,)]
    assert hand_out([2.0, 2.0, 1.0], gains, [FIRST, FIRST, FIRST], 4.5) == pytest.approx({0: 2.0, 1: 1.5, 2: 1.0})
    assert hand_out([2.0, 2.0, 1.0], gains, [FIRST, FIRST, FIRST], 3.0) == {0: 2.0, 1: 1.0}


def test_a_stage_counts_more_than_any_gain() -> None:
    assert list(hand_out([1.0, 1.0], [(0.9,), (0.1,)], [SECOND, FIRST], 2.0)) == [1, 0]


def test_a_job_gets_no_more_than_it_can_use() -> None:
    assert hand_out([0.5, 1.5], [(0.9,), (0.5, 0.4)], [FIRST, FIRST], 8.0) == {0: 0.5, 1: 1.5}


def learner(job_id: str, decay: float, *, reached: int = 0) -> JobView:
    values = (0.8 * (1 - math.exp(-decay * second)) for second in range(30))
    return job(job_id, ladder=tiers(0.1, 0.9, reached=reached), observations=reports(*values), cpu_cores=1.0)


def plan_of(*jobs: JobView, settings: SlaqSettings | None = None) -> Plan:
    policy = SlaqPolicy(settings)
    plan, _ = policy.plan(snapshot(jobs, [node(cpu_cores=2.0)]), policy.initial_state())
    return plan


def test_jobs_that_still_gain_run_and_the_others_keep_a_floor() -> None:
    plan = plan_of(learner("flat", 0.8), learner("steep", 0.03), learner("middle", 0.1), learner("flatter", 0.9))
    assert weights(plan) == pytest.approx({"steep": 0.495, "middle": 0.495, "flat": 0.005, "flatter": 0.005})
    assert plan.assignments[0].share.reason.startswith("works for its tier 1, predicted to gain ")


def test_fewer_tiers_go_first_unless_told_otherwise() -> None:
    jobs = [learner("flat", 0.8), learner("flatter", 0.9), learner("steep", 0.03, reached=1)]
    assert weights(plan_of(*jobs))["steep"] == pytest.approx(0.01)
    assert weights(plan_of(*jobs, settings=SlaqSettings(tier_first=False)))["steep"] == pytest.approx(0.495)


def test_a_new_job_is_tried() -> None:
    plan = plan_of(learner("steep", 0.03), learner("middle", 0.1), job("new", cpu_cores=1.0))
    assert weights(plan)["new"] == pytest.approx(0.495)
    assert "too early to predict" in plan.assignments[0].share.reason


def test_predictions_are_kept_until_the_job_reports_again() -> None:
    policy = SlaqPolicy()
    view = learner("a", 0.1)
    _, state = policy.plan(snapshot([view]), policy.initial_state())
    _, again = policy.plan(snapshot([view]), state)
    assert again.predictions["a"] is state.predictions["a"]
    more = job("a", ladder=view.tiers, observations=(*view.observations, *reports(0.9, first=31)), cpu_cores=1.0)
    _, later = policy.plan(snapshot([more]), state)
    assert later.predictions["a"] != state.predictions["a"]
    _, gone = policy.plan(snapshot([]), later)
    assert gone.predictions == {}


def test_a_job_that_fits_nowhere_waits() -> None:
    assert list(plan_of(waiting_job("w", cpu_cores=99)).waiting) == ["w"]


@pytest.mark.parametrize("fields", [{"horizon": 0.0}, {"recent": 3}, {"floor": 0.0}, {"floor": 1.0}])
def test_settings_that_make_no_sense_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        SlaqSettings(**fields)  # type: ignore[arg-type] # by name


def test_the_last_gain_that_is_known_stands_for_all_further_cores() -> None:
    assert hand_out([100.0, 1.0], [(0.5, 0.2), (0.3,)], [FIRST, FIRST], 64.0) == {0: 63.0, 1: 1.0}
