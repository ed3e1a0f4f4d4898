"""Jobs of drained nodes, around any policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import GIB, job, node, snapshot, waiting_job
from tiercel.broker.scheduling.draining import is_emptying, with_leavers, without_leavers
from tiercel.broker.scheduling.fair import FairPolicy
from tiercel.broker.scheduling.interface import NodeView, Plan, Snapshot
from tiercel.broker.scheduling.registry import BUILT_IN, create_policy
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.nodes import Drain
from tiercel.core.shares import Share

_ALL = Share(1.0, None, "all of it")


def drained(node_id: str, drain: Drain) -> NodeView:
    return replace(node(node_id), drain=drain)


def planned(seen: Snapshot) -> Plan:
    shown = with_leavers(seen)
    plan, _ = FairPolicy().plan(shown, FairPolicy().initial_state())
    assert check_plan(plan, shown) == []
    return without_leavers(plan, seen)


def places(plan: Plan) -> dict[str, str]:
    return {each.job_id: each.node_id for each in plan.assignments}


RUNS = replace(job("a", node_id="n1", share=_ALL), migratable=True)


def test_nothing_new_starts_on_a_drained_node_and_who_is_there_stays() -> None:
    seen = snapshot([RUNS, waiting_job("b")], [drained("n1", Drain.WAIT)])
    plan = planned(seen)
    assert places(plan) == {"a": "n1"}
    assert plan.waiting == {"b": "waits for a node: nothing new starts on n1, which could run it, while drained"}
    assert places(planned(snapshot(seen.jobs, [*seen.nodes, node("n2")]))) == {"a": "n1", "b": "n2"}


def test_who_may_move_leaves_and_who_may_not_stays() -> None:
    fixed = job("b", node_id="n1", share=_ALL)
    seen = snapshot([RUNS, fixed], [drained("n1", Drain.MOVE), node("n2")])
    assert places(planned(seen)) == {"a": "n2", "b": "n1"}
    assert is_emptying(seen)
    assert not is_emptying(snapshot([RUNS], [drained("n1", Drain.WAIT)]))


@pytest.mark.parametrize("other", [(), (node("n2", memory_bytes=GIB // 2),), (drained("n2", Drain.WAIT),)])
def test_who_finds_no_place_runs_on_and_is_not_said_to_wait(other: tuple[NodeView, ...]) -> None:
    plan = planned(snapshot([RUNS, waiting_job("b")], [drained("n1", Drain.MOVE), *other]))
    assert places(plan).get("a", "n1") == "n1"
    assert "a" not in plan.waiting


def test_a_snapshot_without_drained_nodes_is_shown_as_it_is() -> None:
    seen = snapshot([RUNS, waiting_job("b")], [node("n1"), drained("n2", Drain.WAIT)])
    assert with_leavers(seen) is seen
    plan = Plan(waiting={"b": "why"})
    assert without_leavers(plan, seen) is plan


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_no_policy_sends_a_running_job_to_a_drained_node(policy: str) -> None:
    busy = [replace(job(f"j{number}", node_id="n1", cpu_cores=1.0, share=_ALL), migratable=True) for number in range(8)]
    seen = snapshot(busy, [node("n1"), drained("n2", Drain.WAIT)])
    chosen = create_policy(policy, {})
    state = chosen.initial_state()
    for now in (1000.0, 2000.0, 3000.0):
        plan, state = chosen.plan(replace(seen, now=now), state)
        assert set(places(plan).values()) == {"n1"}
