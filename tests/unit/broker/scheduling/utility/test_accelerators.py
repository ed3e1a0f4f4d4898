"""CPU and accelerators together under the utility policy, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testing.known_work import HISTORY, UNGUARDED
from testing.scheduling import GIB, job, node, reasons, snapshot, tiers, waiting_job, weights
from tests.unit.broker.scheduling.test_accelerators import gpu_node
from tiercel.broker.scheduling.allocate import with_accelerators
from tiercel.broker.scheduling.interface import JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.jobs import Resources
from tiercel.core.shares import AcceleratorShare, Share


def on_cpu(name: str, workload: str, cores: float = 1.0) -> JobView:
    return replace(job(name, cpu_cores=cores), workload=workload)


def on_device(name: str, workload: str, *devices: str, intensity: float, cores: float = 1.0, **changes: Any) -> JobView:
    """A job that was measured to use so many device seconds per CPU second, a hundredth of which it has used."""
    held = tuple(AcceleratorShare(device, 0.5, GIB) for device in devices)
    return replace(
        job(name),
        workload=workload,
        resources=Resources(cores, GIB, len(devices), GIB),
        share=Share(0.1, reason="before", accelerators=held),
        cpu_seconds=0.01,
        accelerator_seconds=0.01 * intensity,
        **changes,
    )


def seen(*jobs: JobView, nodes: list[NodeView]) -> Snapshot:
    return replace(snapshot(jobs, nodes), history=HISTORY)


def plan_of(*jobs: JobView, nodes: list[NodeView], settings: UtilitySettings = UNGUARDED) -> Plan:
    policy = UtilityPolicy(settings)
    snapshot = seen(*jobs, nodes=nodes)
    plan, _ = policy.plan(snapshot, policy.initial_state())
    completed = with_accelerators(plan, snapshot)
    assert completed is plan or not any(entry.share.accelerators for entry in plan.assignments)
    assert check_plan(completed, snapshot) == []
    return completed


def fractions(plan: Plan) -> dict[str, float]:
    return {
        entry.job_id: entry.share.accelerators[0].fraction for entry in plan.assignments if entry.share.accelerators
    }


def test_a_job_held_up_by_its_device_is_given_the_cpu_that_it_needs_and_no_more() -> None:
    # A quarter of a core is all that it can use, three tenths what it may; the other job has the rest of two cores.
    plan = plan_of(
        on_device("gpu", "short", "node-0", intensity=4.0),
        on_cpu("cpu", "short", 2.0),
        nodes=[gpu_node(16, cpu_cores=2.0)],
    )
    assert weights(plan) == pytest.approx({"gpu": 0.3 / 2.05, "cpu": 1.75 / 2.05})
    assert fractions(plan) == {"gpu": 1.0}
    assert reasons(plan)["gpu"].endswith("accelerator 0 to itself")


def test_a_device_goes_to_who_makes_most_of_it_and_the_others_keep_a_floor() -> None:
    plan = plan_of(
        on_device("long", "long", "node-0", intensity=4.0),
        on_device("short", "short", "node-0", intensity=4.0),
        nodes=[gpu_node(16, cpu_cores=4.0)],
    )
    assert fractions(plan) == pytest.approx({"short": 0.99, "long": 0.01})
    assert "1 goes before it; keeps" in reasons(plan)["long"]
    assert reasons(plan)["long"].endswith("1 % of accelerator 0 beside 1 other job")


def test_value_per_device_second_decides_and_not_value_per_cpu_second() -> None:
    # The long one needs ten times the CPU seconds of the short one, but only a fortieth of its device's per CPU second.
    plan = plan_of(
        on_device("long", "long", "node-0", intensity=1.0),
        on_device("short", "short", "node-0", intensity=40.0),
        nodes=[gpu_node(16, cpu_cores=4.0)],
    )
    assert fractions(plan)["long"] > 0.9


def test_who_leaves_some_of_a_device_leaves_it_to_the_next() -> None:
    plan = plan_of(
        on_device("short", "short", "node-0", intensity=0.25),
        on_device("long", "long", "node-0", intensity=4.0),
        nodes=[gpu_node(16, cpu_cores=4.0)],
    )
    # The first one uses a quarter of the device and may use three tenths; the other one three quarters of it.
    assert fractions(plan) == pytest.approx({"short": 0.3 / 1.05, "long": 0.75 / 1.05})
    assert all("run now" in reason for reason in reasons(plan).values())


def test_a_device_does_not_idle_for_want_of_a_little_cpu() -> None:
    # One core, and a job without accelerators that is worth ten times as much per dominant share; the other one needs a
    # tenth of a core to keep a whole device busy.
    plan = plan_of(
        on_device("gpu", "short", "node-0", intensity=10.0),
        on_cpu("cpu", "long"),
        nodes=[gpu_node(16, cpu_cores=1.0)],
    )
    assert weights(plan)["gpu"] == pytest.approx(0.12 / 1.02)
    assert weights(plan)["cpu"] == pytest.approx(0.9 / 1.02)


def test_who_seems_to_use_hardly_anything_of_a_device_keeps_the_floor_all_the_same() -> None:
    """A job that is paced to what it once used could never show that it needs more."""
    plan = plan_of(
        on_device("sips", "short", "node-0", intensity=0.001),
        on_device("gulps", "long", "node-0", intensity=4.0),
        nodes=[gpu_node(16, cpu_cores=4.0)],
    )
    assert fractions(plan) == pytest.approx({"sips": 0.01, "gulps": 0.99})


def test_without_a_job_in_front_a_device_is_shared_alike_but_for_those_out_of_reach() -> None:
    lost = tiers(0.9, unreachable=[1])
    plan = plan_of(
        on_cpu("cpu", "short"),
        on_device("a", "long", "node-0", intensity=1.0),
        on_device("b", "long", "node-0", intensity=1.0),
        on_device("c", "long", "node-0", intensity=1.0, tiers=lost),
        nodes=[gpu_node(16, cpu_cores=1.0)],
    )
    assert fractions(plan) == pytest.approx({"a": 0.495, "b": 0.495, "c": 0.01})


def test_several_devices_at_once() -> None:
    plan = plan_of(
        on_device("both", "short", "node-0", "node-1", intensity=2.0),
        on_device("one", "long", "node-1", intensity=2.0),
        nodes=[gpu_node(16, 16, cpu_cores=4.0)],
    )
    shares = {entry.job_id: entry.share.accelerators for entry in plan.assignments}
    assert [each.fraction for each in shares["both"]] == pytest.approx([1.0, 0.99])
    assert [each.fraction for each in shares["one"]] == pytest.approx([0.01])


def test_a_job_that_waits_gets_its_devices_in_the_same_plan() -> None:
    waiting = replace(waiting_job("new"), resources=Resources(1.0, GIB, 1, 0), workload="short")
    busy, free = gpu_node(16, name="busy"), gpu_node(16, name="free")
    holds = replace(on_device("old", "long", "busy-0", intensity=1.0), node_id="busy")
    plan = plan_of(holds, waiting, nodes=[busy, free, node("none", cpu_cores=64.0)])
    (new,) = (entry for entry in plan.assignments if entry.job_id == "new")
    assert (new.node_id, new.share.accelerators) == ("free", (AcceleratorShare("free-0", 1.0, 16 * GIB),))


def test_who_would_be_over_too_late_goes_first_on_its_device() -> None:
    """The CPU has room for all three jobs, their device for one."""
    policy = UtilityPolicy(UtilitySettings(guard_ratio=1.2))
    old = [on_device(name, "long", "node-0", intensity=4.0) for name in ("a", "b")]
    newer = on_device("c", "longest", "node-0", intensity=4.0, submitted_at=1310.0, tenant_weight=100.0)
    on = gpu_node(16, cpu_cores=4.0)
    _, state = policy.plan(seen(*old, nodes=[on]), policy.initial_state())
    # Under equal sharing both would be over at about 1320 s, so they must be before about 1600 s; each needs 160 s.
    plan, state = policy.plan(replace(seen(*old, newer, nodes=[on]), now=1310.0), state)
    assert fractions(plan)["c"] > 0.9
    plan, _ = policy.plan(replace(seen(*old, newer, nodes=[on]), now=1450.0), state)
    assert fractions(plan)["a"] > 0.9
    assert reasons(plan)["a"].startswith("goes first, as it would end too late otherwise")


def test_decisions_do_not_change_back_and_forth() -> None:
    """Two jobs worth the same: whoever is in front on the device stays there."""
    policy = UtilityPolicy(UNGUARDED)
    state = policy.initial_state()
    jobs = [on_device(name, "long", "node-0", intensity=4.0) for name in ("a", "b")]
    fronts = []
    for second in range(12):
        snapshot = replace(seen(*jobs, nodes=[gpu_node(16, cpu_cores=4.0)]), now=1000.0 + second)
        plan, state = policy.plan(snapshot, state)
        found = fractions(plan)
        fronts.append(max(found, key=found.__getitem__))
        jobs = [
            replace(
                each,
                cpu_seconds=each.cpu_seconds + found[each.id] / 4,
                accelerator_seconds=each.accelerator_seconds + found[each.id],
            )
            for each in jobs
        ]
    assert len(set(fronts)) == 1
