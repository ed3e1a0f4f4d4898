"""What the utility policy keeps beyond what every policy does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from testing.scheduling import GIB, job, node, tiers, waiting_job
from tiercel.broker.scheduling.interface import (
    CurvePoint,
    EndpointView,
    JobView,
    NodeView,
    PastRun,
    Snapshot,
    Trigger,
)
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.serving import LEAST
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.jobs import Observation
from tiercel.core.shares import Share

few = settings(max_examples=40, deadline=None)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[JobView, ...]:
    """Jobs that run on two nodes and learn as real ones do, some of them hopeless."""
    jobs = []
    for index in range(draw(st.integers(2, 7))):
        level = draw(st.sampled_from([0.4, 0.95]))
        pace = draw(st.floats(0.05, 0.5))
        count = draw(st.integers(0, 40))
        seen = tuple(
            Observation(float(at), at, level * (1 - (1 + pace) ** -at), 2.0 + at) for at in range(1, count + 1)
        )
        reached = int(any(report.value >= 0.5 for report in seen))
        jobs.append(
            replace(
                job(f"job{index}", node_id=draw(st.sampled_from(["a", "b"])), cpu_cores=1.0),
                tiers=tiers(0.5, 0.9, reached=reached, unreachable=[1] if level < 0.5 and count > 30 else []),
                observations=seen,
                cpu_seconds=2.0 + count,
                workload=f"program{index % 3}",
                max_epochs=60,
                migratable=True,
                submitted_at=float(draw(st.integers(0, 50))),
            )
        )
    return tuple(jobs)


NODES = (node("a", cpu_cores=2.0), node("b", cpu_cores=2.0))


def at(now: float, jobs: tuple[JobView, ...], nodes: tuple[NodeView, ...] = NODES) -> Snapshot:
    return Snapshot(now, Trigger.INTERVAL, jobs, nodes)


@given(jobs=crowds(), guard=st.sampled_from([0.0, 1.5]))
@few
def test_who_is_out_of_reach_gets_no_more_than_a_floor_while_others_want_to_run(
    jobs: tuple[JobView, ...], guard: float
) -> None:
    chosen = UtilitySettings(guard_ratio=guard)
    policy = UtilityPolicy(chosen)
    state = policy.initial_state()
    for now in (100.0, 110.0, 400.0):
        plan, state = policy.plan(at(now, jobs), state)
        shares: dict[str, dict[str, float]] = defaultdict(dict)
        for entry in plan.assignments:
            shares[entry.node_id][entry.job_id] = entry.share.cpu_weight
        for on_node in shares.values():
            if any(name not in plan.unreachable for name in on_node):
                assert all(on_node[name] <= chosen.floor for name in on_node if name in plan.unreachable)


@given(jobs=crowds(), guard=st.sampled_from([0.0, 1.5]))
@few
def test_all_of_a_node_is_given_away(jobs: tuple[JobView, ...], guard: float) -> None:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=guard))
    plan, _ = policy.plan(at(100.0, jobs), policy.initial_state())
    totals: dict[str, float] = defaultdict(float)
    for entry in plan.assignments:
        totals[entry.node_id] += entry.share.cpu_weight
        assert entry.share.cpu_cap_cores is None
    assert all(abs(total - 1) < 1e-9 for total in totals.values())


@given(jobs=crowds())
@few
def test_a_job_that_was_moved_is_not_sent_back_while_nothing_happens(jobs: tuple[JobView, ...]) -> None:
    policy = UtilityPolicy()
    state = policy.initial_state()
    visited: dict[str, list[str]] = {entry.id: [entry.node_id] for entry in jobs}
    for step in range(12):
        now = 100.0 + 10 * step
        snapshot = at(now, jobs)
        plan, state = policy.plan(snapshot, state)
        assert check_plan(plan, snapshot) == []
        place = {entry.job_id: entry for entry in plan.assignments}
        moved = [entry.id for entry in jobs if place[entry.id].node_id != entry.node_id]
        assert len(moved) <= 1, "one a round"
        for name in moved:
            assert place[name].node_id not in visited[name]
            visited[name].append(place[name].node_id)
        jobs = tuple(
            replace(entry, node_id=place[entry.id].node_id, share=place[entry.id].share, migrated_at=now)
            if entry.id in moved
            else entry
            for entry in jobs
        )


@given(
    jobs=crowds(),
    rates=st.lists(st.floats(0, 1e4), min_size=1, max_size=3),
    objective=st.floats(1e-4, 10),
    used=st.floats(0, 8),
    in_objective=st.none() | st.floats(0, 1),
)
@few
def test_endpoints_and_jobs_fit_on_their_node(
    jobs: tuple[JobView, ...], rates: list[float], objective: float, used: float, in_objective: float | None
) -> None:
    share = Share(0.1, reason="before")
    endpoints = tuple(
        EndpointView(f"e{index}", "t", "a", 1.0, objective, rate, objective * 2, used, 0.9, share, in_objective)
        for index, rate in enumerate(rates)
    )
    policy = UtilityPolicy()
    state = policy.initial_state()
    for now in (100.0, 101.0, 103.5):
        snapshot = replace(at(now, jobs), endpoints=endpoints)
        plan, state = policy.plan(snapshot, state)
        assert check_plan(plan, snapshot) == []
        assert set(plan.endpoint_shares) <= {view.name for view in endpoints}
        if len(endpoints) == 1:
            assert plan.endpoint_shares == {}, "nobody competes with it"
        on_a = [entry.share.cpu_weight for entry in plan.assignments if entry.node_id == "a"]
        if on_a:
            assert sum(on_a) >= 0.9 * LEAST


PAST = {
    f"program{work}": (PastRun((CurvePoint(work / 10, 0.1), CurvePoint(float(work), 0.9))),) * 3 for work in range(1, 9)
}


@given(works=st.lists(st.integers(1, 8), min_size=2, max_size=8), room=st.integers(1, 4))
@few
def test_whoever_waits_for_memory_is_worth_no_more_than_who_found_some(works: list[int], room: int) -> None:
    jobs = tuple(
        replace(waiting_job(f"job{index}", submitted_at=float(index)), workload=f"program{work}")
        for index, work in enumerate(works)
    )
    nodes = (node("a", cpu_cores=2.0, memory_bytes=room * GIB), node("b", cpu_cores=1.0, memory_bytes=GIB))
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    plan, _ = policy.plan(replace(at(100.0, jobs, nodes), history=PAST), policy.initial_state())
    found = {entry.job_id for entry in plan.assignments}
    assert len(found) == min(len(works), room + 1), "nobody waits while there is room"
    assert found | plan.waiting.keys() == {entry.id for entry in jobs}
    needs = {entry.id: work for entry, work in zip(jobs, works, strict=True)}
    assert max(needs[name] for name in found) <= min((needs[name] for name in plan.waiting), default=9)
