"""What priority classes do to any plan."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from testing.scheduling import GIB, job, node, snapshot
from tiercel.broker.scheduling.deciding import Decision, decide
from tiercel.broker.scheduling.fair import FairPolicy
from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.core.jobs import Tier, TierStatus
from tiercel.core.tenants import NO_CLASS, PriorityClass

CLASSES = st.sampled_from([NO_CLASS, NO_CLASS, PriorityClass("low", -1), PriorityClass("high", 9, preempts=False)])
URGENT = PriorityClass("urgent", 5)
HARD = (TierStatus(1, Tier(0.9, deadline_seconds=60.0, hard=True)),)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    nodes = [node(f"node{index}", memory_bytes=6 * GIB) for index in range(draw(st.integers(1, 3)))]
    jobs = []
    for index in range(draw(st.integers(1, 8))):
        node_id = draw(st.sampled_from(["", *(each.id for each in nodes)]))
        view = job(
            f"job{index}",
            node_id=node_id,
            movable=not node_id,
            cpu_cores=draw(st.sampled_from([1.0, 4.0])),
            memory_bytes=draw(st.integers(0, 4)) * GIB,
        )
        view = replace(view, priority_class=draw(CLASSES), migratable=bool(node_id) and draw(st.booleans()))
        jobs.append(replace(view, tiers=HARD) if draw(st.integers(0, 4)) == 0 else view)
    wanting = job("urgent", node_id="", movable=True, memory_bytes=draw(st.integers(1, 6)) * GIB)
    return snapshot([*jobs, replace(wanting, priority_class=URGENT)], nodes)


def decided(seen: Snapshot) -> Decision:
    return decide(FairPolicy(), FairPolicy().initial_state(), seen)


@given(seen=snapshots())
@settings(max_examples=300, deadline=None)
def test_only_those_that_must_are_suspended_and_they_make_room(seen: Snapshot) -> None:
    decision = decided(seen)
    assert decision.problems() == []
    jobs = {each.id: each for each in seen.jobs}
    victims = [jobs[name] for name in decision.plan.suspended]
    for each in victims:
        assert each.priority_class.value < URGENT.value
        assert not any(tier.tier.hard for tier in each.tiers)
    if not victims:
        return
    (node_id,) = {each.node_id for each in victims}
    where = {entry.job_id: entry.node_id for entry in decision.plan.assignments}
    stay = [jobs[name] for name, place in where.items() if place == node_id and jobs[name] not in victims]
    free = 6 * GIB - _held(stay)
    needed = jobs["urgent"].resources.memory_bytes
    assert needed <= free
    assert all(needed > free - each.resources.memory_bytes for each in victims), "each of them must"


def _held(jobs: list[JobView]) -> int:
    return sum(each.resources.memory_bytes for each in jobs)


@given(seen=snapshots())
@settings(max_examples=200, deadline=None)
def test_who_is_higher_has_what_it_can_use_before_who_is_lower_has_more_than_a_floor(seen: Snapshot) -> None:
    plan, jobs = decided(seen).plan, {each.id: each for each in seen.jobs}
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for entry in plan.assignments:
        shares[entry.node_id][entry.job_id] = entry.share.cpu_weight
    for on_node in shares.values():
        assert math.isclose(math.fsum(on_node.values()), 1.0)
        top = max(jobs[name].priority_class.value for name in on_node)
        for name, weight in on_node.items():
            promised = jobs[name].tiers == HARD
            if jobs[name].priority_class.value < top and not promised and weight > 0.01:
                above = [each for each in on_node if jobs[each].priority_class.value == top]
                assert all(on_node[each] >= jobs[each].resources.cpu_cores / 4.0 - 0.02 for each in above)
