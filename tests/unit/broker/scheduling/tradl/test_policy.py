from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.scheduling import job, node, reports, snapshot, tiers, waiting_job
from tiercel.broker.scheduling.interface import CurvePoint, JobView, NodeView, PastRun, Plan
from tiercel.broker.scheduling.tradl.memory import TradlState
from tiercel.broker.scheduling.tradl.policy import TradlPolicy, TradlSettings
from tiercel.broker.scheduling.tradl.rank import TradlWeight
from tiercel.core.jobs import Direction


def plan_of(
    *jobs: JobView, nodes: list[NodeView] | None = None, settings: TradlSettings | None = None
) -> tuple[dict[str, float], dict[str, str], Plan]:
    """Weights and reasons by job, and the plan."""
    policy = TradlPolicy(settings)
    plan, _ = policy.plan(snapshot(jobs, nodes), policy.initial_state())
    weights = {entry.job_id: entry.share.cpu_weight for entry in plan.assignments}
    reasons = {entry.job_id: entry.share.reason for entry in plan.assignments}
    return weights, reasons, plan


# Growth 0.10 and 0.05 per CPU second, and 0.02: with targets of 0.9 the gaps are 0.4, 0.6 and 0.8.
FAST = job("fast", observations=reports(0.40, 0.50))
MIDDLE = job("middle", observations=reports(0.25, 0.30))
SLOW = job("slow", observations=reports(0.08, 0.10))


def test_eta_weights_by_growth_over_gap() -> None:
    # 0.1/0.4 = 0.25, 0.05/0.6 = 0.08333, 0.02/0.8 = 0.025, sum 0.358333. The floor is 1/8, below which slow (0.0698)
    # would be; the others share 7/8 as 0.25 : 0.08333 = 3 : 1.
    weights, reasons, _ = plan_of(FAST, MIDDLE, SLOW)
    assert weights == pytest.approx({"fast": 0.65625, "middle": 0.21875, "slow": 0.125})
    assert reasons["fast"] == (
        "first in line: 0.4 from its tier-1 target 0.9 and improving 0.1 per CPU-second; gets 66 % of the node"
    )


def test_growth_weights_by_growth_alone() -> None:
    # 10 : 5 : 2 of 1; slow's 0.1176 is below its floor of 0.125, the others share 0.875 as 2 : 1
    weights, _, _ = plan_of(FAST, MIDDLE, SLOW, settings=TradlSettings(weights=TradlWeight.GROWTH))
    assert weights == pytest.approx({"fast": 0.875 * 2 / 3, "middle": 0.875 / 3, "slow": 0.125})


def test_gap_weights_by_need() -> None:
    weights, _, _ = plan_of(FAST, MIDDLE, SLOW, settings=TradlSettings(weights=TradlWeight.GAP))
    assert weights == pytest.approx({"fast": 4 / 18, "middle": 6 / 18, "slow": 8 / 18})


def test_accuracies_and_losses_compare_under_eta() -> None:
    # loss: 20 per CPU second, 60 to go: 1/3 per CPU second; accuracy: 0.1 and 0.4: 1/4
    loss = job("loss", ladder=tiers(100.0), direction=Direction.MIN, observations=reports(180.0, 160.0))
    weights, reasons, _ = plan_of(FAST, loss)
    assert weights == pytest.approx({"fast": 3 / 7, "loss": 4 / 7})
    assert "60 from its tier-1 target 100 and improving 20 per CPU-second" in reasons["loss"]


def test_jobs_without_history_count_as_the_mean_of_the_others() -> None:
    # 0.25 and 0.08333, mean 0.16667: 3 : 1 : 2
    weights, reasons, _ = plan_of(FAST, MIDDLE, job("new"))
    assert weights == pytest.approx({"fast": 3 / 6, "middle": 1 / 6, "new": 2 / 6})
    assert "no report yet; counts as the average of the others and gets 33 % of the node" in reasons["new"]


def test_earlier_runs_tell_the_growth_where_that_is_asked_for() -> None:
    # They needed 20 and 60 CPU seconds to the target, whatever the jobs' own reports say: 3 : 1.
    history = {
        name: (PastRun((CurvePoint(1.0, 0.1), CurvePoint(end, 0.9))),) for name, end in (("x", 20.0), ("y", 60.0))
    }
    jobs = [replace(MIDDLE, workload="x", cpu_seconds=0.0), replace(job("new"), workload="y")]
    policy = TradlPolicy(TradlSettings(history=True))
    plan, _ = policy.plan(replace(snapshot(jobs), history=history), policy.initial_state())
    weights = {entry.job_id: entry.share.cpu_weight for entry in plan.assignments}
    assert weights["middle"] / weights["new"] == pytest.approx(3.0, rel=0.01)


def test_all_without_history_share_equally() -> None:
    weights, reasons, _ = plan_of(job("a"), job("b"), job("c", observations=reports(0.2)))
    assert weights == pytest.approx(dict.fromkeys("abc", 1 / 3))
    assert "too early to say how fast it improves" in reasons["c"]


def test_a_job_that_gets_worse_has_its_floor() -> None:
    weights, reasons, _ = plan_of(FAST, job("worse", observations=reports(0.5, 0.4)))
    assert weights == pytest.approx({"fast": 5 / 6, "worse": 1 / 6})
    assert "not improving at the moment" in reasons["worse"]


def test_jobs_past_tier_one_keep_the_floor_while_another_is_short_of_it() -> None:
    past = job("past", ladder=tiers(0.5, 0.9, reached=1), observations=reports(0.5, 0.8))
    weights, reasons, _ = plan_of(FAST, MIDDLE, past)
    assert weights["past"] == pytest.approx(1 / 8)
    assert weights["fast"] + weights["middle"] == pytest.approx(7 / 8)
    assert weights["fast"] == pytest.approx(3 * weights["middle"])
    assert (
        reasons["past"] == "tier 1 is reached, and jobs that have reached fewer go first; goes on with 13 % of the node"
    )


def test_among_jobs_past_tier_one_the_fewest_reached_lead() -> None:
    second = job("second", ladder=tiers(0.3, 0.6, 0.9, reached=1))
    third = job("third", ladder=tiers(0.3, 0.6, 0.9, reached=2))
    done = job("done", ladder=tiers(0.3, reached=1))
    weights, reasons, _ = plan_of(second, third, done)
    assert weights == pytest.approx({"second": 0.75, "third": 0.125, "done": 0.125})
    assert "tiers 1 to 2 are reached" in reasons["third"]
    assert reasons["done"].startswith("all its tiers are reached; goes on with")


def test_jobs_that_reached_everything_share_equally() -> None:
    weights, reasons, _ = plan_of(job("a", ladder=tiers(0.3, reached=1)), job("b", ladder=tiers(0.3, 0.4, reached=2)))
    assert weights == {"a": 0.5, "b": 0.5}
    assert "all share alike: 50 % of the node" in reasons["a"]


def test_the_floor_follows_beta() -> None:
    # 1 / (2 * beta * n) = 1 / (2 * 2 * 2)
    past = job("past", ladder=tiers(0.5, 0.9, reached=1))
    weights, _, _ = plan_of(FAST, past, settings=TradlSettings(beta=2.0))
    assert weights == pytest.approx({"fast": 0.875, "past": 0.125})


def test_lead_and_floor_are_a_nodes_own_affair() -> None:
    past = job("past", node_id="b", ladder=tiers(0.5, 0.9, reached=1))
    weights, _, _ = plan_of(job("first", node_id="a"), past, nodes=[node("a"), node("b")])
    assert weights == {"first": 1.0, "past": 1.0}


def test_what_a_lead_job_cannot_use_goes_to_the_next_one() -> None:
    # On 4 cores a job of one core uses at most a quarter.
    one_core = job("one", cpu_cores=1.0, observations=reports(0.4, 0.5))
    past = job("past", ladder=tiers(0.5, 0.9, reached=1))
    weights, _, _ = plan_of(one_core, MIDDLE, past)
    assert weights == pytest.approx({"one": 0.25, "middle": 0.625, "past": 0.125})
    weights, _, _ = plan_of(one_core, past)
    assert weights == pytest.approx({"one": 0.25, "past": 0.75})


def hopeless(job_id: str = "hopeless", count: int = 40) -> JobView:
    """A job that levels off at 0.5, far from its target of 0.9."""
    values = (0.5 - 0.4 * math.exp(-index / 4) for index in range(count))
    return job(job_id, observations=reports(*values))


def run_up_to(policy: TradlPolicy, view: JobView, others: list[JobView]) -> tuple[Plan, TradlState]:
    """Plan after every report of ``view``."""
    state = policy.initial_state()
    plan = Plan()
    for count in range(len(view.observations) + 1):
        seen = job(view.id, ladder=view.tiers, observations=view.observations[:count])
        plan, state = policy.plan(snapshot([seen, *others]), state)
    return plan, state


def test_a_hopeless_job_loses_its_place_in_line_and_is_told() -> None:
    plan, _ = run_up_to(TradlPolicy(), hopeless(), [SLOW])
    shares = {entry.job_id: entry.share for entry in plan.assignments}
    assert shares["hopeless"].cpu_weight == pytest.approx(1 / 6)
    assert shares["slow"].cpu_weight == pytest.approx(5 / 6)
    assert plan.unreachable["hopeless"].startswith("tier 1 (target 0.9) looks out of reach: ")
    assert shares["hopeless"].reason == f"{plan.unreachable['hopeless']}; goes on with 17 % of the node"


def test_a_hopeless_job_takes_nothing_that_the_lead_cannot_use() -> None:
    one_core = job("one", cpu_cores=1.0)
    plan, _ = run_up_to(TradlPolicy(), hopeless(), [one_core])
    weights = {entry.job_id: entry.share.cpu_weight for entry in plan.assignments}
    assert weights == pytest.approx({"one": 0.25, "hopeless": 1 / 6})


def test_a_hopeless_job_alone_may_use_everything() -> None:
    plan, _ = run_up_to(TradlPolicy(), hopeless(), [])
    assert plan.assignments[0].share.cpu_weight == 1.0
    assert "hopeless" in plan.unreachable


def test_progress_brings_a_job_back_into_line() -> None:
    policy = TradlPolicy()
    view = hopeless()
    _, state = run_up_to(policy, view, [SLOW])
    risen = job(view.id, observations=(*view.observations, *reports(0.7, first=41)))
    plan, _ = policy.plan(snapshot([risen, SLOW]), state)
    assert plan.unreachable == {}
    assert {entry.job_id: entry.share.cpu_weight for entry in plan.assignments}["hopeless"] > 0.5


def test_the_state_forgets_jobs_that_are_gone() -> None:
    policy = TradlPolicy()
    _, state = policy.plan(snapshot([FAST, SLOW]), policy.initial_state())
    assert state.jobs.keys() == {"fast", "slow"}
    _, state = policy.plan(snapshot([SLOW]), state)
    assert state.jobs.keys() == {"slow"}


def test_a_node_without_news_is_not_decided_about_again() -> None:
    policy = TradlPolicy()
    nodes = [node("a"), node("b")]
    jobs = [
        job("x", node_id="a", observations=reports(0.1, 0.2)),
        job("y", node_id="b", observations=reports(0.1, 0.2)),
    ]
    _, state = policy.plan(snapshot(jobs, nodes), policy.initial_state())
    jobs[0] = job("x", node_id="a", observations=reports(0.1, 0.2, 0.4))
    plan, later = policy.plan(snapshot(jobs, nodes), state)
    assert later.nodes["b"] is state.nodes["b"]
    assert later.jobs["y"] is state.jobs["y"]
    assert later.nodes["a"] is not state.nodes["a"]
    assert [entry.job_id for entry in plan.assignments] == ["x", "y"]


def test_who_comes_to_the_lead_by_the_verdict_on_another_is_judged_without_waiting_for_news() -> None:
    # The hopeless job leads alone, since the other one has reached a tier, which is judged once that lost its place.
    policy = TradlPolicy(TradlSettings(verdicts=1))
    second = job("second", ladder=tiers(0.1, 0.9, reached=1), observations=hopeless().observations)
    jobs = [hopeless(), second]
    first_plan, state = policy.plan(snapshot(jobs), policy.initial_state())
    assert list(first_plan.unreachable) == ["hopeless"]
    second_plan, _ = policy.plan(snapshot(jobs), state)
    assert list(second_plan.unreachable) == ["hopeless", "second"]


def test_a_job_that_waits_or_whose_node_is_offline_gets_no_share() -> None:
    weights, _, plan = plan_of(FAST, job("lost", node_id="gone"), waiting_job("w", cpu_cores=99))
    assert weights == {"fast": 1.0}
    assert list(plan.waiting) == ["w"]


@pytest.mark.parametrize(
    "settings", [{"window": 0}, {"beta": 0.9}, {"beta": math.nan}, {"min_reports": 5}, {"verdicts": 0}, {"alpha": -1.0}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least"):
        TradlSettings(**settings)  # type: ignore[arg-type] # by name
