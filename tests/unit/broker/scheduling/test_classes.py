"""Whom priority classes suspend, by hand, and what is told."""

from __future__ import annotations

from dataclasses import replace

from testing.scheduling import GIB, job, node, snapshot, tiers, waiting_job
from tiercel.broker.scheduling.classes import with_classes
from tiercel.broker.scheduling.deciding import decide
from tiercel.broker.scheduling.fair import FairPolicy
from tiercel.broker.scheduling.interface import JobView, NodeView, Plan, RestartCost
from tiercel.core.tenants import PriorityClass

URGENT = PriorityClass("urgent", 100)
LATER = PriorityClass("later", -5)


def running(job_id: str, memory_gib: int, node_id: str = "node", workload: str = "") -> JobView:
    view = job(job_id, node_id=node_id, cpu_cores=1.0, memory_bytes=memory_gib * GIB)
    return replace(view, migratable=True, workload=workload)


def urgent(memory_gib: int) -> JobView:
    return replace(waiting_job("u", memory_bytes=memory_gib * GIB), priority_class=URGENT)


def plan_of(jobs: list[JobView], *nodes: NodeView, restarts: dict[str, RestartCost] | None = None) -> Plan:
    seen = replace(snapshot(jobs, nodes or [node(memory_bytes=8 * GIB)]), restarts=restarts or {})
    return decide(FairPolicy(), FairPolicy().initial_state(), seen).plan


def test_who_loses_least_is_suspended_and_both_are_told_why() -> None:
    costs = {"slow": RestartCost(30.0, 60.0), "quick": RestartCost(1.0, 1.0)}
    jobs = [running("a", 3, workload="slow"), running("b", 3, workload="quick"), urgent(5)]
    plan = plan_of(jobs, restarts=costs)
    assert plan.suspended == {"b": "suspended for job u of class urgent"}
    assert plan.waiting["u"].endswith("; 1 of lower classes is suspended for it")
    # Stopping b alone is not enough for 6 GiB beside a, of a lower class or not.
    assert set(plan_of([*jobs[:2], urgent(6)], restarts=costs).suspended) == {"a", "b"}


def test_of_nodes_the_one_whose_jobs_lose_least_and_of_jobs_the_lowest_class_first() -> None:
    nodes = [node(name, memory_bytes=4 * GIB) for name in ("a", "b")]
    jobs = [running("a1", 2, "a"), running("a2", 2, "a"), running("b1", 4, "b")]
    assert set(plan_of([*jobs, urgent(3)], *nodes).suspended) == {"b1"}
    lower = [replace(each, priority_class=LATER) for each in jobs[:2]]
    assert set(plan_of([*lower, jobs[2], urgent(3)], *nodes).suspended) == {"a1", "a2"}


def test_nobody_is_suspended_whose_room_helps_nobody_or_is_coming_or_who_was_promised_a_deadline() -> None:
    assert plan_of([running("a", 3), job("fixed", memory_bytes=5 * GIB), urgent(4)]).suspended == {}
    stopping = replace(running("a", 6), stopping=True, migratable=False)
    assert plan_of([stopping, running("b", 2), urgent(5)]).suspended == {}
    promised = replace(running("a", 8), tiers=tuple(replace(t, tier=replace(t.tier, hard=True)) for t in tiers(0.9)))
    assert plan_of([promised, urgent(5)]).suspended == {}
    patient = replace(urgent(5), priority_class=replace(URGENT, preempts=False))
    assert plan_of([running("a", 8), patient]).suspended == {}


def test_without_classes_the_plan_is_the_same_object() -> None:
    seen = snapshot([running("a", 3), waiting_job("b")])
    plan = Plan(waiting={"b": "waits"})
    assert with_classes(plan, seen) is plan
