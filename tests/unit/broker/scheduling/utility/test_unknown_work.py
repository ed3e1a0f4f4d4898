"""What the utility policy expects of jobs of which nothing is known, or not enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.known_work import UNGUARDED, known, plan_of
from testing.scheduling import job, node, reasons, reports, snapshot, tiers, weights
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.record import Held


def test_without_anything_known_the_first_come_is_the_first_served() -> None:
    jobs = [replace(job(name, cpu_cores=1.0), submitted_at=float(at)) for at, name in enumerate("cab")]
    assert [entry.job_id for entry in plan_of(*jobs).assignments] == ["c", "a", "b"]


def unknown(name: str, spent: float) -> JobView:
    return replace(job(name, cpu_cores=1.0), cpu_seconds=spent, submitted_at=1000.0 - spent)


def test_of_whom_nothing_is_known_who_has_used_least_goes_first() -> None:
    plan = plan_of(unknown("old", 30.0), unknown("new", 3.0))
    assert weights(plan) == pytest.approx({"new": 0.99, "old": 0.01})
    assert reasons(plan)["new"] == (
        "works for tier 1; no earlier run shows how long that takes; 3 s of CPU time used so far: "
        "the one that runs now, with 99 % of the node"
    )


def test_what_jobs_needed_becomes_what_is_expected_of_others() -> None:
    policy = UtilityPolicy(UNGUARDED)
    climbing = job("first", cpu_cores=1.0, ladder=tiers(0.9, 0.99))
    _, state = policy.plan(snapshot([climbing, known("unknown", "")]), policy.initial_state())
    before = state.held.records["unknown"].remaining.expected
    reached = replace(
        climbing, tiers=tiers(0.9, 0.99, reached=1), observations=reports(0.5, 0.95, cpu_per_report=100.0)
    )
    reached = replace(reached, cpu_seconds=200.0)
    _, state = policy.plan(snapshot([reached, known("unknown", "")]), state)
    _, state = policy.plan(snapshot([reached, known("unknown", "")]), state)
    assert before < 20
    assert state.held.records["unknown"].remaining.expected > 100


def test_where_others_needed_about_alike_who_is_nearest_to_that_goes_first() -> None:
    policy = UtilityPolicy(UNGUARDED)
    state = replace(policy.initial_state(), held=Held(samples=(20.0,) * 50))
    plan, _ = policy.plan(snapshot([unknown("a", 5.0), unknown("b", 15.0)], [node(cpu_cores=1.0)]), state)
    assert plan.assignments[0].job_id == "b"


def test_who_outlives_all_earlier_runs_counts_as_one_of_which_nothing_is_known() -> None:
    plan = plan_of(known("a", "short", cpu_seconds=100.0), known("b", "long"))
    assert plan.assignments[0].job_id == "b"
