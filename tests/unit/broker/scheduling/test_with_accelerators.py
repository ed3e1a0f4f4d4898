"""Fractions of devices for policies that know nothing of them, and the safety net."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import GIB, job, node, snapshot, waiting_job
from tests.unit.broker.scheduling.test_accelerators import asking, gpu_node, holding
from tiercel.broker.scheduling.allocate import FLOOR, divide_accelerator, with_accelerators
from tiercel.broker.scheduling.fair import FairPolicy, FairState
from tiercel.broker.scheduling.interface import Assignment, Plan, Snapshot
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.shares import AcceleratorShare, Share

ON = gpu_node(16, 16)
FIRST, SECOND = (holding(job(name), "node-0", gib=4) for name in ("first", "second"))


def planned(*weights: tuple[str, float]) -> Plan:
    return Plan(tuple(Assignment(name, "node", Share(weight, reason="because")) for name, weight in weights))


def completed(seen: Snapshot, *weights: tuple[str, float]) -> dict[str, Share]:
    plan = with_accelerators(planned(*weights), seen)
    assert check_plan(plan, seen) == []
    return {entry.job_id: entry.share for entry in plan.assignments}


def test_fractions_follow_the_weights_of_the_jobs_on_a_device() -> None:
    alone = holding(job("alone"), "node-1", gib=4)
    seen = snapshot([FIRST, SECOND, alone, job("cpu")], [ON])
    shares = completed(seen, ("first", 0.3), ("second", 0.1), ("alone", 0.1), ("cpu", 0.5))
    given = [shares[name].accelerators[0].fraction for name in ("first", "second", "alone")]
    assert given == pytest.approx([0.75, 0.25, 1.0])
    assert shares["first"].reason == "because; 75 % of accelerator 0 beside 1 other job"
    assert shares["alone"].reason == "because; accelerator 1 to itself"
    assert shares["cpu"] == Share(0.5, reason="because")


def test_everybody_keeps_a_floor() -> None:
    assert divide_accelerator({"a": 0.99, "b": 1e-12}) == pytest.approx({"a": 1 - FLOOR, "b": FLOOR})
    assert divide_accelerator({"a": 1e-12}) == {"a": 1.0}
    many = divide_accelerator({f"j{number}": 0.0 for number in range(300)})
    assert sum(many.values()) == pytest.approx(1.0)


def test_what_a_policy_filled_in_itself_stands() -> None:
    seen = snapshot([FIRST, SECOND], [ON])
    entries = [
        Assignment(name, "node", Share(0.5, None, "mine", (AcceleratorShare("node-0", fraction, 4 * GIB),)))
        for name, fraction in (("first", 0.9), ("second", 0.1))
    ]
    plan = Plan(tuple(entries))
    assert with_accelerators(plan, seen) is plan
    # Devices that its jobs do not hold do not.
    moved = replace(entries[0].share, accelerators=(AcceleratorShare("node-1", 1.0, 4 * GIB),))
    wrong = Plan((replace(entries[0], share=moved), entries[1]))
    assert check_plan(wrong, seen) != []
    assert check_plan(with_accelerators(wrong, seen), seen) == []


def test_without_jobs_that_use_accelerators_the_plan_is_the_same_object() -> None:
    plan = planned(("cpu", 1.0))
    assert with_accelerators(plan, snapshot([job("cpu")], [ON])) is plan


def test_newcomers_get_what_placement_found_for_them() -> None:
    seen = snapshot([FIRST, asking(waiting_job("new"), 2, gib=8)], [ON])
    plan, _ = FairPolicy().plan(seen, FairState())
    plan = with_accelerators(plan, seen)
    assert check_plan(plan, seen) == []
    (new,) = (entry.share for entry in plan.assignments if entry.job_id == "new")
    assert [(share.id, share.fraction) for share in new.accelerators] == [("node-0", 0.5), ("node-1", 1.0)]


def _given(name: str, *shares: AcceleratorShare) -> Assignment:
    return Assignment(name, "node", Share(0.1, None, "because", shares))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (_given("new"), "asks for 1 accelerators and is given 0"),
        (_given("new", AcceleratorShare("node-0", 0.5, 4 * GIB), AcceleratorShare("node-1", 1.0, 4 * GIB)), "given 2"),
        (_given("new", AcceleratorShare("other", 0.5, 4 * GIB)), "which node node does not have"),
        (_given("new", AcceleratorShare("node-1", 0.5, 4 * GIB)), "out of order: lost"),
        (_given("new", AcceleratorShare("node-0", 0.5, GIB)), "and is given 1073741824"),
        (_given("new", AcceleratorShare("node-0", 0.0, 4 * GIB)), "the fraction 0.0"),
        (_given("new", AcceleratorShare("node-0", float("nan"), 4 * GIB)), "the fraction nan"),
        (_given("new", AcceleratorShare("node-0", 0.6, 4 * GIB)), "add up to 1.1"),
        (_given("cpu", AcceleratorShare("node-0", 0.1, GIB)), "asks for 0 accelerators and is given 1"),
        (_given("large", AcceleratorShare("node-0", 0.5, 13 * GIB)), "its jobs were promised"),
        (_given("whole", AcceleratorShare("node-0", 0.5, 16 * GIB)), "was promised to a job alone"),
        (_given("first"), "cannot change its accelerators"),
    ],
)
def test_the_safety_net_sees_what_is_wrong(entry: Assignment, words: str) -> None:
    on = gpu_node(16, 16)
    on = replace(on, accelerators=(on.accelerators[0], replace(on.accelerators[1], problem="lost")))
    waiting = [
        asking(waiting_job("new"), gib=4),
        waiting_job("cpu"),
        asking(waiting_job("large"), gib=13),
        asking(waiting_job("whole")),
    ]
    entries = [entry] if entry.job_id == "first" else [_given("first", AcceleratorShare("node-0", 0.5, 4 * GIB)), entry]
    problems = check_plan(Plan(tuple(entries)), snapshot([FIRST, *waiting], [on]))
    assert any(words in problem for problem in problems), problems


def test_a_job_keeps_a_device_that_is_gone() -> None:
    seen = snapshot([FIRST], [node()])
    share = completed(seen, ("first", 1.0))["first"]
    assert [each.id for each in share.accelerators] == ["node-0"]
