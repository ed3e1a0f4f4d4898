"""A job's priority changes what its tenant's jobs have among each other, and nothing for anybody else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from testing.scheduling import GIB, job, node, snapshot
from tiercel.broker.scheduling.interface import Assignment, JobView, Plan, Snapshot
from tiercel.broker.scheduling.own_priority import with_own_priorities
from tiercel.broker.scheduling.placement import place
from tiercel.broker.scheduling.registry import BUILT_IN, create_policy
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.jobs import Resources
from tiercel.core.shares import Share


@st.composite
def jobs_of_tenants(draw: st.DrawFn) -> tuple[JobView, ...]:
    made = []
    for index in range(draw(st.integers(0, 10))):
        waits = draw(st.booleans())
        view = job(
            f"job{index}",
            node_id="" if waits else draw(st.sampled_from(["n1", "n2"])),
            movable=waits,
            submitted_at=float(draw(st.integers(0, 3))),
            cpu_cores=draw(st.sampled_from([1.0, 2.0])),
            memory_bytes=draw(st.integers(1, 3)) * GIB,
        )
        made.append(
            replace(view, tenant=draw(st.sampled_from(["alice", "bob"])), priority=draw(st.sampled_from([-7, 0, 100])))
        )
    return tuple(made)


def seen(jobs: tuple[JobView, ...]) -> Snapshot:
    return snapshot(jobs, [node("n1", cpu_cores=2.0, memory_bytes=9 * GIB), node("n2", memory_bytes=6 * GIB)])


def without(jobs: tuple[JobView, ...], tenant: str) -> tuple[JobView, ...]:
    """The jobs, those of one tenant without priorities."""
    return tuple(replace(each, priority=0) if each.tenant == tenant else each for each in jobs)


@settings(deadline=None)
@given(jobs_of_tenants(), st.lists(st.sampled_from([0.05, 0.1, 0.3]), min_size=10, max_size=10))
def test_of_any_plan_nobody_else_has_more_or_less(jobs: tuple[JobView, ...], weights: list[float]) -> None:
    given_out = tuple(
        Assignment(each.id, each.node_id or "n1", Share(weight, reason="why"))
        for each, weight in zip(jobs, weights, strict=False)
    )
    after = with_own_priorities(Plan(given_out), seen(jobs)).assignments
    by_id = {each.id: each for each in jobs}

    def amounts(assignments: tuple[Assignment, ...]) -> Counter[tuple[str, str, float, float]]:
        return Counter(
            (by_id[each.job_id].tenant, each.node_id, by_id[each.job_id].resources.cpu_cores, each.share.cpu_weight)
            for each in assignments
        )

    assert amounts(after) == amounts(given_out), "what a tenant has is only handed out otherwise"
    assert [(each.job_id, each.node_id) for each in after] == [(each.job_id, each.node_id) for each in given_out]
    for one in after:
        for other in after:
            mine, theirs = by_id[one.job_id], by_id[other.job_id]
            if (mine.tenant, one.node_id, mine.resources) != (theirs.tenant, other.node_id, theirs.resources):
                continue
            if mine.priority > theirs.priority:
                assert one.share.cpu_weight >= other.share.cpu_weight
    alone = with_own_priorities(Plan(given_out), seen(without(jobs, "alice"))).assignments
    bobs = [each.job_id for each in given_out if by_id[each.job_id].tenant == "bob"]
    assert [each for each in after if each.job_id in bobs] == [each for each in alone if each.job_id in bobs]


@settings(deadline=None)
@given(jobs_of_tenants())
def test_in_the_line_for_nodes_nobody_else_loses_a_place(jobs: tuple[JobView, ...]) -> None:
    with_priorities, plain = place(seen(jobs)), place(seen(without(jobs, "alice")))
    for each in jobs:
        if each.tenant == "bob":
            assert with_priorities.node_of.get(each.id) == plain.node_of.get(each.id)
    taken = Counter((each.tenant, with_priorities.node_of.get(each.id), each.resources) for each in jobs)
    assert taken == Counter((each.tenant, plain.node_of.get(each.id), each.resources) for each in jobs)


@settings(max_examples=30, deadline=None)
@given(jobs_of_tenants(), st.sampled_from(sorted(set(BUILT_IN) - {"srpt-oracle"})))
def test_the_plans_of_every_policy_stay_sound(jobs: tuple[JobView, ...], name: str) -> None:
    view = seen(jobs)
    policy = create_policy(name)
    plan, _ = policy.plan(view, policy.initial_state())
    assert check_plan(with_own_priorities(plan, view), view) == check_plan(plan, view)


def test_the_one_with_the_higher_priority_goes_first() -> None:
    early, late = (
        job(f"job{at}", node_id="", movable=True, submitted_at=at, memory_bytes=4 * GIB) for at in (1.0, 2.0)
    )
    urgent = replace(late, priority=1)
    room = [node("n1", memory_bytes=5 * GIB)]
    assert place(snapshot([early, late], room)).node_of == {early.id: "n1"}
    assert place(snapshot([early, urgent], room)).node_of == {late.id: "n1"}


def test_a_share_that_changed_places_says_why() -> None:
    first, second = job("a", node_id="node"), replace(job("b", node_id="node"), priority=5)
    plan = Plan(
        (Assignment("a", "node", Share(0.9, reason="first")), Assignment("b", "node", Share(0.1, reason="next")))
    )
    a, b = with_own_priorities(plan, snapshot([first, second])).assignments
    assert (a.share.cpu_weight, b.share.cpu_weight) == (0.1, 0.9)
    assert b.share.reason == "priority 5 among its tenant's jobs: it has what the policy gave a"


def test_plans_without_priorities_and_jobs_with_accelerators_are_left_alone() -> None:
    plan = Plan(
        (Assignment("a", "node", Share(0.9, reason="first")), Assignment("b", "node", Share(0.1, reason="next")))
    )
    plain = [job("a", node_id="node"), job("b", node_id="node")]
    assert with_own_priorities(plan, snapshot(plain)) is plan
    on_devices = [replace(each, resources=Resources(accelerators=1), priority=n) for n, each in enumerate(plain)]
    assert with_own_priorities(plan, snapshot(on_devices)) is plan
