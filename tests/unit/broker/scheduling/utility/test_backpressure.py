"""What is kept from jobs while answers come late, from the first late answer to the last core given back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testing.scheduling import GIB, job, node, snapshot
from tiercel.broker.scheduling.interface import EndpointView, JobView, Plan
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.serving import LEAST
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.jobs import Resources
from tiercel.core.nodes import Accelerator
from tiercel.core.shares import AcceleratorShare, Share

CORES = 2.0
# Nothing that is not under test: one job in front, and no guard.
SETTINGS = UtilitySettings(guard_ratio=0.0, answers_per_value=1.0)


def endpoint(in_objective: float | None, **changes: Any) -> EndpointView:
    view = EndpointView("digits", "tenant", "node", objective_seconds=0.02, requests_per_second=50.0)
    return replace(view, delay_seconds=0.01, cpu_cores_used=0.1, in_objective=in_objective, **changes)


class Node:
    """One node with two jobs, and the policy that is asked about it again and again."""

    def __init__(self, settings: UtilitySettings = SETTINGS) -> None:
        self.policy = UtilityPolicy(settings)
        self.state = self.policy.initial_state()
        self.jobs: list[JobView] = [job(name, cpu_cores=1.0) for name in "ab"]
        self.now = 100.0

    def plan(self, *endpoints: EndpointView, seconds: float = 2.5, accelerators: tuple[Accelerator, ...] = ()) -> Plan:
        """The plan so many seconds later."""
        self.now += seconds
        machine = replace(node(cpu_cores=CORES), accelerators=accelerators)
        seen = replace(snapshot(self.jobs, [machine]), now=self.now, endpoints=endpoints)
        plan, self.state = self.policy.plan(seen, self.state)
        return plan

    def trains(self, *endpoints: EndpointView, seconds: float = 2.5) -> float | None:
        """Cores that jobs may use at most; None while nothing is kept from them."""
        plan = self.plan(*endpoints, seconds=seconds)
        caps = [entry.share.cpu_cap_cores for entry in plan.assignments]
        return None if None in caps else sum(cap for cap in caps if cap is not None)


def test_the_plan_after_answers_came_late_takes_cpu_from_training() -> None:
    here = Node()
    assert here.trains(endpoint(1.0)) is None
    plan = here.plan(endpoint(0.5))
    assert sum(entry.share.cpu_cap_cores or 9.0 for entry in plan.assignments) == pytest.approx(0.75 * CORES)
    assert plan.endpoint_shares == {}
    reason = "25 % of the jobs' CPU is kept for answers: endpoint digits has 50 % of them in time"
    assert all(entry.share.reason.endswith(reason) for entry in plan.assignments)


def test_accelerators_are_kept_for_answers_in_the_same_part_and_given_back() -> None:
    here = Node()
    device = Accelerator("GPU-1", "card", 80 * GIB)
    held = Share(1.0, reason="because", accelerators=(AcceleratorShare("GPU-1", 1.0, 8 * GIB),))
    asks = Resources(1.0, accelerators=1, accelerator_memory_bytes=8 * GIB)
    here.jobs = [replace(job("a"), resources=asks, share=held), job("b", cpu_cores=1.0)]

    def cap(*endpoints: EndpointView, seconds: float = 2.5) -> float | None:
        plan = here.plan(*endpoints, seconds=seconds, accelerators=(device,))
        ((mine,),) = [entry.share.accelerators for entry in plan.assignments if entry.job_id == "a"]
        here.jobs[0] = replace(here.jobs[0], share=replace(held, accelerators=(mine,)))
        return mine.cap

    assert cap(endpoint(1.0)) is None
    assert cap(endpoint(0.5)) == pytest.approx(0.75)
    for _ in range(5):
        last = cap(endpoint(1.0), seconds=15.0)
    assert last is None


def test_what_is_taken_has_time_to_show_and_grows_to_all_but_the_floor() -> None:
    here = Node()
    assert here.trains(endpoint(0.0)) == pytest.approx(1.5)
    assert here.trains(endpoint(0.0), seconds=0.5) == pytest.approx(1.5)
    assert here.trains(endpoint(0.3)) == pytest.approx(1.0)
    assert here.trains(endpoint(0.4)) == pytest.approx(0.5)
    for _ in range(5):
        assert here.trains(endpoint(0.5)) == pytest.approx(LEAST * CORES)


def test_it_is_given_back_in_small_steps_once_answers_are_in_time() -> None:
    here = Node()
    here.trains(endpoint(0.5))
    assert here.trains(endpoint(0.99)) == pytest.approx(1.5)
    found = [here.trains(endpoint(0.99), seconds=11.0) for _ in range(5)]
    assert found[:4] == pytest.approx([1.6, 1.7, 1.8, 1.9])
    assert found[4] is None


def test_nothing_is_taken_where_that_is_switched_off() -> None:
    assert Node(replace(SETTINGS, backpressure=0.0)).trains(endpoint(0.0)) is None


def test_training_that_is_worth_more_than_late_answers_keeps_its_cpu() -> None:
    here = Node(replace(SETTINGS, answers_per_value=1e9))
    assert here.trains(endpoint(0.0)) is None


def test_the_part_in_time_is_what_late_answers_are_priced_by() -> None:
    # The same requests: what is lost counts, not what is asked.
    def takes(in_objective: float, answers_per_value: float) -> bool:
        here = Node(replace(SETTINGS, answers_per_value=answers_per_value))
        return here.trains(endpoint(in_objective)) is not None

    limits = [max(exponent for exponent in range(40) if takes(part, 1.5**exponent)) for part in (0.9, 0.5, 0.0)]
    assert limits == sorted(limits)
    assert limits[0] < limits[1] < limits[2]


@pytest.mark.parametrize(
    "view",
    [
        endpoint(None),
        endpoint(0.96),
        replace(endpoint(0.0), objective_seconds=None),
        replace(endpoint(0.0), node_id="elsewhere"),
    ],
)
def test_nothing_is_kept_where_nothing_is_late(view: EndpointView) -> None:
    assert Node().trains(view) is None


def test_nothing_is_remembered_of_a_node_without_jobs() -> None:
    here = Node()
    here.trains(endpoint(0.0))
    jobs, here.jobs = here.jobs, []
    here.plan(endpoint(0.0))
    assert not here.state.nodes["node"].backpressure.part
    here.jobs = jobs
    assert here.trains(endpoint(0.99)) is None
