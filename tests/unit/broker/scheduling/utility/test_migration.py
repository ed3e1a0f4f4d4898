"""Whether a job is worth moving, by what a restart was measured to cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import job, node, snapshot
from tiercel.broker.scheduling.interface import CurvePoint, EndpointView, PastRun, Plan, RestartCost
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.settings import UtilitySettings

WARM = RestartCost(stop_seconds=0.1, cold_seconds=None, start_seconds={"a": 0.05, "b": 0.05})
SLOW = RestartCost(stop_seconds=2.0, cold_seconds=8.0)
# Jobs that are over after 9 CPU seconds each, or so many times that; all are on a, and nothing is on b.
CURVE = (CurvePoint(1.0, 0.1), CurvePoint(4.0, 0.9), CurvePoint(9.0, 0.99))
NODES = [node("a", cpu_cores=1.0), node("b", cpu_cores=1.0)]


def plan_at(
    cost: RestartCost | None, *, length: float = 1.0, jobs: int = 2, endpoints: tuple[EndpointView, ...] = ()
) -> Plan:
    """What is decided about so many jobs where a restart costs that."""
    past = {"program": (PastRun(tuple(replace(point, cpu_seconds=length * point.cpu_seconds) for point in CURVE)),) * 3}
    seen = snapshot(
        [
            replace(job(f"job{n}", cpu_cores=1.0), workload="program", node_id="a", migratable=True, endpoint="own")
            for n in range(jobs)
        ],
        NODES,
    )
    seen = replace(seen, endpoints=endpoints, history=past, restarts={} if cost is None else {"program": cost})
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    return policy.plan(seen, policy.initial_state())[0]


def sent(plan: Plan) -> list[str]:
    return [entry.share.reason for entry in plan.assignments if entry.node_id == "b"]


@pytest.mark.parametrize(("cost", "moves"), [(WARM, True), (SLOW, False), (None, False)])
def test_the_same_state_at_another_price_is_another_decision(cost: RestartCost | None, *, moves: bool) -> None:
    assert len(sent(plan_at(cost))) == moves


def test_what_gains_enough_is_worth_a_dear_restart_too() -> None:
    assert len(sent(plan_at(SLOW, length=20.0))) == 1


def test_its_tenant_is_told_the_price() -> None:
    (reason,) = sent(plan_at(WARM))
    assert "to go on there takes it about 0.1 s" in reason or "to go on there takes it about 0.2 s" in reason


def test_where_it_was_warm_it_goes_sooner_than_where_it_never_ran() -> None:
    cold_there = RestartCost(stop_seconds=0.1, cold_seconds=8.0, start_seconds={"a": 0.05})
    assert sent(plan_at(cold_there)) == []
    assert len(sent(plan_at(replace(cold_there, start_seconds={"a": 0.05, "b": 0.05})))) == 1


@pytest.mark.parametrize(("name", "moves"), [("own", False), ("other", True)])
def test_a_job_leaves_the_answers_of_others_but_those_of_its_endpoint_go_with_it(name: str, *, moves: bool) -> None:
    answers = EndpointView(name, "tenant", "a", requests_per_second=10.0, cpu_cores_used=0.1, delay_seconds=0.01)
    assert bool(sent(plan_at(SLOW, length=200.0, jobs=1, endpoints=(answers,)))) == moves
