from __future__ import annotations

import math

import pytest

from testing.scheduling import GIB, job, node, snapshot, waiting_job
from tiercel.broker.scheduling.interface import Assignment, JobView, Plan
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.shares import Share

WHY = "because"


def share(weight: float = 0.5, cap: float | None = None, reason: str = WHY) -> Share:
    return Share(weight, cap, reason)


def test_a_sound_plan_has_no_problems() -> None:
    jobs = [job("a"), waiting_job("b"), waiting_job("c", cpu_cores=99), job("offline", node_id="gone")]
    plan = Plan((Assignment("a", "node", share()), Assignment("b", "node", share())), {"c": WHY}, {"a": WHY})
    assert check_plan(plan, snapshot(jobs)) == []


@pytest.mark.parametrize(
    ("jobs", "plan", "words"),
    [
        ([], Plan((Assignment("a", "node", share()),)), "not in the snapshot"),
        ([waiting_job("a")], Plan((Assignment("a", "gone", share()),)), "not online"),
        ([], Plan(waiting={"a": WHY}), "is waiting but is not in the snapshot"),
        ([], Plan(unreachable={"a": WHY}), "is unreachable but is not in the snapshot"),
        ([job("a")], Plan((Assignment("a", "node", share(0.1)),) * 2), "has 2 assignments"),
        ([job("a")], Plan((Assignment("a", "node", share()),), {"a": WHY}), "both waits and has"),
        ([waiting_job("a")], Plan(), "neither has an assignment nor a reason"),
        ([job("a")], Plan((Assignment("a", "node", share(0.0)),)), "not in (0, 1]"),
        ([job("a")], Plan((Assignment("a", "node", share(math.nan)),)), "not in (0, 1]"),
        ([job("a")], Plan((Assignment("a", "node", share(cap=0.0)),)), "lets it do nothing"),
        ([job("a")], Plan((Assignment("a", "node", share(reason="")),)), "without a reason"),
        ([waiting_job("a")], Plan(waiting={"a": ""}), "is waiting without a reason"),
        ([job("a", node_id="other")], Plan((Assignment("a", "node", share()),)), "may not be moved"),
        ([waiting_job("a", cpu_cores=99)], Plan((Assignment("a", "node", share()),)), "which cannot run it"),
        (
            [job("a"), job("b")],
            Plan((Assignment("a", "node", share(0.5)), Assignment("b", "node", share(0.51)))),
            "add up to 1.01",
        ),
        (
            [job("a", memory_bytes=40 * GIB), waiting_job("b", memory_bytes=40 * GIB)],
            Plan((Assignment("a", "node", share()), Assignment("b", "node", share()))),
            "were promised",
        ),
    ],
)
def test_each_defect_is_named(jobs: list[JobView], plan: Plan, words: str) -> None:
    problems = check_plan(plan, snapshot(jobs, [node(), node("other")] if "moved" in words else None))
    assert any(words in problem for problem in problems), problems


def test_memory_that_running_jobs_overran_is_not_the_plans_fault() -> None:
    jobs = [job("a", memory_bytes=40 * GIB), job("b", memory_bytes=40 * GIB)]
    plan = Plan((Assignment("a", "node", share()), Assignment("b", "node", share())))
    assert check_plan(plan, snapshot(jobs)) == []
