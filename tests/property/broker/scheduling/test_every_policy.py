"""What every policy in the registry keeps, over random snapshots."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tiercel.broker.scheduling.allocate import FLOOR, with_accelerators
from tiercel.broker.scheduling.interface import JobView, NodeView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.options import Option
from tiercel.broker.scheduling.registry import BUILT_IN, AnyPolicy, create_policy
from tiercel.broker.scheduling.srpt_oracle import OracleSnapshot
from tiercel.broker.scheduling.tiers import delivering_tier, next_tier
from tiercel.broker.scheduling.tradl.policy import TradlSettings
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.jobs import Direction, Observation, Resources, Tier, TierState, TierStatus
from tiercel.core.nodes import Accelerator, Drain
from tiercel.core.shares import AcceleratorShare, Share

GIB = 1024**3
VARIANTS: list[tuple[str, dict[str, Option]]] = [(name, {}) for name in sorted(BUILT_IN)] + [
    ("tradl", {"weights": "growth"}),
    ("tradl", {"weights": "gap"}),
    ("fifo", {"at_a_time": 1, "floor": 0.2}),
    ("flowcon", {"mode": "literal", "interval": 1.0}),
    ("flowcon", {"rule": "multiplicative", "scale_free": True, "interval": 1.0, "alpha": 0.0}),
    ("flowcon", {"no_update": True}),
    ("las", {"thresholds": "", "tier_first": False}),
    ("slaq", {"tier_first": False, "recent": 4}),
    ("specon", {"placement": "procon", "growth": "flowcon", "unit": "reports", "interval": 1, "round_seconds": 0.0}),
    ("specon", {"placement": "random", "rule": "load"}),
    ("srpt-oracle", {"works": "job:10/20"}),
]
few = settings(max_examples=20, deadline=None)
more = settings(max_examples=45, deadline=None)

values = st.one_of(st.floats(0, 1), st.floats(allow_nan=True, allow_infinity=True))
seconds = st.one_of(st.floats(0, 1e6), st.floats(min_value=0, allow_nan=False, allow_infinity=False))


@st.composite
def observation_series(draw: st.DrawFn) -> tuple[Observation, ...]:
    """Reports of any shape; some series are long and smooth, as real ones are."""
    if draw(st.booleans()):
        level, rate, count = draw(st.floats(0, 1)), draw(st.floats(0.01, 1)), draw(st.integers(0, 40))
        device = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
        return tuple(
            Observation(float(index), index, level * (1 - math.exp(-rate * index)), index * 0.5, index * device)
            for index in range(count)
        )
    count = draw(st.integers(0, 12))
    return tuple(
        Observation(draw(seconds), index, draw(values), draw(seconds), draw(seconds)) for index in range(count)
    )


@st.composite
def ladders(draw: st.DrawFn) -> tuple[TierStatus, ...]:
    count = draw(st.integers(1, 3))
    reached = draw(st.integers(0, count))
    open_state = st.sampled_from([TierState.PENDING, TierState.PENDING, TierState.UNREACHABLE])
    gone_state = st.sampled_from([TierState.REACHED, TierState.DELIVERED, TierState.FAILED])
    target = st.one_of(st.floats(0, 1), st.floats(allow_nan=False, allow_infinity=False))
    return tuple(
        TierStatus(number, Tier(draw(target)), draw(gone_state if number <= reached else open_state))
        for number in range(1, count + 1)
    )


@st.composite
def devices(draw: st.DrawFn, node_id: str) -> tuple[Accelerator, ...]:
    """None, as on most machines, or a few that are not alike and not all well."""
    return tuple(
        Accelerator(
            f"{node_id}-gpu{index}",
            "GPU",
            draw(st.sampled_from([8, 16])) * GIB,
            draw(st.sampled_from(["", "", "", "fell off the bus"])),
        )
        for index in range(draw(st.sampled_from([0, 0, 1, 2, 4])))
    )


@st.composite
def holdings(draw: st.DrawFn, node: NodeView | None, wanted: Resources) -> tuple[AcceleratorShare, ...]:
    """What a job may hold that was put on a node some time ago: not always what anybody would give it now."""
    if node is None or not wanted.accelerators:
        return ()
    ids = [view.id for view in node.accelerators] + ["gone"]
    chosen = draw(st.lists(st.sampled_from(ids), max_size=wanted.accelerators, unique=True))
    memory = wanted.accelerator_memory_bytes or 8 * GIB
    return tuple(AcceleratorShare(name, draw(st.sampled_from([0.1, 1.0])), memory) for name in chosen)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    nodes = tuple(
        NodeView(
            id=f"node{index}",
            cpu_cores=draw(st.sampled_from([0.5, 1.0, 2.0, 16.0])),
            memory_bytes=draw(st.integers(0, 12)) * GIB,
            runtimes=draw(st.sampled_from([(), ("process",), ("docker", "process")])),
            images=draw(st.sampled_from([frozenset(), frozenset({"known:latest"})])),
            accelerators=draw(devices(f"node{index}")),
            drain=draw(st.sampled_from([Drain.NO, Drain.NO, Drain.WAIT, Drain.MOVE])),
        )
        for index in range(draw(st.integers(0, 4)))
    )
    count = draw(st.integers(0, 8))
    ids = draw(st.permutations([f"job{index}" for index in range(count)]))
    places = {"": None, "offline": None, **{node.id: node for node in nodes}}
    return OracleSnapshot(
        now=1e9,
        trigger=Trigger.INTERVAL,
        jobs=tuple(draw(jobs(name, places)) for name in ids),
        nodes=nodes,
        true_work={name: draw(st.sampled_from([(), (5.0,), (5.0, 10.0, 20.0)])) for name in ids},
    )


@st.composite
def jobs(draw: st.DrawFn, job_id: str, places: dict[str, NodeView | None]) -> JobView:
    node_id = draw(st.sampled_from(list(places)))
    resources = Resources(
        draw(st.sampled_from([0.25, 1.0, 4.0])),
        draw(st.integers(0, 8)) * GIB,
        draw(st.sampled_from([0, 0, 1, 1, 2])),
        draw(st.sampled_from([0, 2, 5])) * GIB,
    )
    held = draw(holdings(places[node_id], resources))
    return JobView(
        id=job_id,
        tenant=draw(st.sampled_from(["a", "b"])),
        submitted_at=draw(st.sampled_from([0.0, 1.0, 2.0])),
        direction=draw(st.sampled_from(Direction)),
        tiers=draw(ladders()),
        resources=resources,
        runtime=draw(st.sampled_from(["", "process", "docker"])),
        image=draw(st.sampled_from(["", "known", "unknown"])),
        node_id=node_id,
        movable=node_id == "" or draw(st.booleans()),
        share=draw(st.sampled_from([None, Share(0.5, reason="before", accelerators=held)])),
        observations=draw(observation_series()),
        cpu_seconds=draw(seconds),
        accelerator_seconds=draw(seconds),
        home=draw(st.sampled_from(["", "", *places])),
    )


def every_policy() -> Iterator[tuple[str, dict[str, Option]]]:
    """One after the other on one snapshot, since drawing it costs more than planning it; a failure tells which."""
    for name, options in VARIANTS:
        note(f"policy {name} {options}")
        yield name, options


def passes(policy: AnyPolicy, snapshot: Snapshot) -> list[Plan]:
    """Plans of successive passes, each of which comes later and sees some more of every job's reports."""
    state = policy.initial_state()
    plans = []
    for now, part in ((16.0, 0.4), (28.0, 0.7), (40.0, 1.0), (snapshot.now, 1.0)):
        seen = tuple(
            dataclasses.replace(job, observations=job.observations[: math.ceil(part * len(job.observations))])
            for job in snapshot.jobs
        )
        later = dataclasses.replace(snapshot, now=now, jobs=seen)
        plan, state = policy.plan(later, state)
        plans.append(with_accelerators(plan, later))
    return plans


@given(snapshot=snapshots())
@more
def test_every_plan_is_sound(snapshot: Snapshot) -> None:
    for name, options in every_policy():
        for plan in passes(create_policy(name, options), snapshot):
            assert check_plan(plan, snapshot) == []
            assert_fits(plan, snapshot)
            assert_devices_fit(plan, snapshot)
            assert_jobs_are_where_they_may_be(plan, snapshot)


def assert_fits(plan: Plan, snapshot: Snapshot) -> None:
    """Weights add up to at most 1 a node, memory is not promised twice; counted here, not by the code under test."""
    views = {job.id: job for job in snapshot.jobs}
    weights: dict[str, float] = defaultdict(float)
    memory: dict[str, int] = defaultdict(int)
    for entry in plan.assignments:
        assert 0 < entry.share.cpu_weight <= 1 + 1e-9
        assert entry.share.reason
        weights[entry.node_id] += entry.share.cpu_weight
        memory[entry.node_id] += views[entry.job_id].resources.memory_bytes
    assert all(total <= 1 + 1e-9 for total in weights.values())
    for node in snapshot.nodes:
        fixed = sum(job.resources.memory_bytes for job in views.values() if not job.movable and job.node_id == node.id)
        assert memory[node.id] <= max(node.memory_bytes, fixed)


def assert_devices_fit(plan: Plan, snapshot: Snapshot) -> None:
    """Devices are chosen once and for all, exist, are well, and neither their time nor their memory is given twice."""
    views = {job.id: job for job in snapshot.jobs}
    devices = {view.id: view for node in snapshot.nodes for view in node.accelerators}
    holders: dict[str, list[tuple[JobView, AcceleratorShare]]] = defaultdict(list)
    for entry in plan.assignments:
        job, given_shares = views[entry.job_id], entry.share.accelerators
        if job.movable:
            assert len({each.id for each in given_shares}) == len(given_shares) == job.resources.accelerators
            assert all(each.id in devices and each.id.startswith(entry.node_id) for each in given_shares)
            assert all(not devices[each.id].problem for each in given_shares)
        else:
            held = job.share.accelerators if job.share else ()
            assert [(each.id, each.memory_bytes) for each in given_shares] == [(h.id, h.memory_bytes) for h in held]
        for each in given_shares:
            holders[f"{entry.node_id}/{each.id}"].append((job, each))
    for found in holders.values():
        shares = [each for _, each in found]
        assert math.fsum(each.fraction for each in shares) == pytest.approx(1.0)
        assert all(each.fraction >= min(FLOOR, 1 / len(shares)) - 1e-12 for each in shares)
        view = devices.get(shares[0].id)
        new = [job for job, _ in found if job.movable]
        if new and view is not None:
            assert sum(each.memory_bytes for each in shares) <= view.memory_bytes
            assert len(found) == 1 or all(job.resources.accelerator_memory_bytes for job in new)


def assert_jobs_are_where_they_may_be(plan: Plan, snapshot: Snapshot) -> None:
    """Running jobs stay, those of offline nodes get nothing, and whoever else is left out is told why."""
    online = {node.id for node in snapshot.nodes}
    drained = {node.id for node in snapshot.nodes if node.drain is not Drain.NO}
    node_of = {entry.job_id: entry.node_id for entry in plan.assignments}
    for job in snapshot.jobs:
        if job.movable:
            assert (job.id in node_of) is not bool(plan.waiting.get(job.id))
            assert not job.home or node_of.get(job.id) in {None, job.home}
            assert node_of.get(job.id) not in drained
        else:
            assert node_of.get(job.id) == (job.node_id if job.node_id in online else None)
            assert job.id not in plan.waiting


@given(snapshot=snapshots(), seed=st.integers(0, 99))
@more
def test_the_same_snapshot_gives_the_same_plan_whatever_the_order(snapshot: Snapshot, seed: int) -> None:
    shuffled = random.Random(seed)
    mixed = dataclasses.replace(
        snapshot,
        jobs=tuple(shuffled.sample(snapshot.jobs, len(snapshot.jobs))),
        nodes=tuple(shuffled.sample(snapshot.nodes, len(snapshot.nodes))),
    )
    for name, options in every_policy():
        assert passes(create_policy(name, options), snapshot) == passes(create_policy(name, options), mixed)


@pytest.mark.parametrize("options", [{}, {"weights": "growth"}, {"weights": "gap"}])
@given(snapshot=snapshots())
@few
def test_tradl_keeps_floors_and_gives_the_hopeless_no_more_while_another_is_first_in_line(
    options: dict[str, Option], snapshot: Snapshot
) -> None:
    views = {job.id: job for job in snapshot.jobs}
    for plan in passes(create_policy("tradl", options), snapshot):
        shares: dict[str, dict[str, float]] = defaultdict(dict)
        for entry in plan.assignments:
            shares[entry.node_id][entry.job_id] = entry.share.cpu_weight
        for on_node in shares.values():
            floor = TradlSettings().floor(len(on_node))
            assert all(weight >= floor - 1e-12 for weight in on_node.values())
            in_line = [name for name in on_node if next_tier(views[name]) and name not in plan.unreachable]
            hopeless = [name for name in on_node if name in plan.unreachable]
            if in_line:
                assert all(on_node[name] <= floor + 1e-12 for name in hopeless)


@pytest.mark.parametrize("options", [{}, {"guard_ratio": 0.0}])
@given(snapshot=snapshots())
@few
def test_utility_gives_the_hopeless_no_more_than_a_floor_of_a_device_that_others_could_use(
    options: dict[str, Option], snapshot: Snapshot
) -> None:
    # Who has a model to hand over is not hopeless before that is done.
    handing_over = {job.id for job in snapshot.jobs if delivering_tier(job)}
    for plan in passes(create_policy("utility", options), snapshot):
        shares: dict[str, dict[str, float]] = defaultdict(dict)
        for entry in plan.assignments:
            for each in entry.share.accelerators:
                shares[f"{entry.node_id}/{each.id}"][entry.job_id] = each.fraction
        in_reach = {entry.job_id for entry in plan.assignments if entry.job_id not in plan.unreachable}
        for on_device in shares.values():
            if in_reach & on_device.keys() and not handing_over & on_device.keys():
                assert sum(part for name, part in on_device.items() if name not in in_reach) <= UtilitySettings().floor


@given(snapshot=snapshots())
@more
def test_what_was_decided_of_devices_stays_once_it_is_carried_out(snapshot: Snapshot) -> None:
    """No ping-pong: who was put on devices keeps them in every later plan."""
    for name, options in every_policy():
        assert_devices_are_kept(create_policy(name, options), snapshot)


def assert_devices_are_kept(policy: AnyPolicy, snapshot: Snapshot) -> None:
    plan, state = policy.plan(snapshot, policy.initial_state())
    plan = with_accelerators(plan, snapshot)
    placed = {entry.job_id: entry for entry in plan.assignments}
    after = tuple(
        dataclasses.replace(job, node_id=placed[job.id].node_id, share=placed[job.id].share, movable=False)
        if job.id in placed
        else job
        for job in snapshot.jobs
    )
    later = dataclasses.replace(snapshot, jobs=after)
    for _ in range(2):
        plan, state = policy.plan(later, state)
        plan = with_accelerators(plan, later)
        assert check_plan(plan, later) == []
        for entry in plan.assignments:
            if entry.job_id in placed:
                held = [(each.id, each.memory_bytes) for each in placed[entry.job_id].share.accelerators]
                assert [(each.id, each.memory_bytes) for each in entry.share.accelerators] == held
