"""What DQoES-style scheduling keeps, over random endpoints."""

from __future__ import annotations

import dataclasses
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from testing.scheduling import job, node
from tiercel.broker.scheduling.dqoes.policy import DqoesPolicy, DqoesSettings
from tiercel.broker.scheduling.dqoes.rule import DqoesDelay, DqoesMode, DqoesWeight
from tiercel.broker.scheduling.interface import EndpointView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.shares import Share

few = settings(max_examples=100, deadline=None)
seconds = st.one_of(st.floats(1e-4, 100), st.floats(min_value=1e-300, max_value=1e300))
every_setting = st.builds(
    DqoesSettings,
    mode=st.sampled_from(DqoesMode),
    weights=st.sampled_from(DqoesWeight),
    delay=st.sampled_from(DqoesDelay),
    interval=st.just(0.0),
)


@st.composite
def endpoints(draw: st.DrawFn) -> tuple[EndpointView, ...]:
    def one(index: int) -> EndpointView:
        cap = draw(st.one_of(st.none(), st.floats(0.01, 4)))
        return EndpointView(
            name=f"endpoint{index}",
            tenant="t",
            node_id=draw(st.sampled_from(["a", "b", "offline"])),
            objective_seconds=draw(st.one_of(st.none(), seconds)),
            requests_per_second=draw(st.floats(0, 1e6)),
            delay_seconds=draw(st.one_of(st.none(), st.just(0.0), seconds)),
            cpu_cores_used=draw(st.one_of(st.floats(0, 4), st.floats(0, 1e300))),
            share=None if cap is None else Share(cap / 4, cap, "before"),
            in_objective=draw(st.one_of(st.none(), st.floats(0, 1))),
            p95_seconds=draw(st.one_of(st.none(), seconds)),
        )

    return tuple(one(index) for index in range(draw(st.integers(0, 8))))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    jobs = tuple(job(f"job{n}", node_id=draw(st.sampled_from(["a", "b"]))) for n in range(draw(st.integers(0, 3))))
    return Snapshot(0.0, Trigger.INTERVAL, jobs, (node("a"), node("b", cpu_cores=0.5)), draw(endpoints()))


def passes(policy: DqoesPolicy, snapshot: Snapshot) -> list[Plan]:
    state = policy.initial_state()
    plans = []
    for now in (0.0, 1.0, 100.0):
        plan, state = policy.plan(dataclasses.replace(snapshot, now=now), state)
        plans.append(plan)
        views = tuple(
            dataclasses.replace(view, share=plan.endpoint_shares.get(view.name)) for view in snapshot.endpoints
        )
        snapshot = dataclasses.replace(snapshot, endpoints=views)
    return plans


@given(snapshot=snapshots(), options=every_setting)
@few
def test_every_plan_is_sound_and_leaves_training_its_floor(snapshot: Snapshot, options: DqoesSettings) -> None:
    for plan in passes(DqoesPolicy(options), snapshot):
        assert check_plan(plan, snapshot) == []
        for node_id in ("a", "b"):
            jobs = [entry.share.cpu_weight for entry in plan.assignments if entry.node_id == node_id]
            assert not jobs or sum(jobs) >= options.training_floor - 1e-9


@given(snapshot=snapshots(), options=every_setting, seed=st.integers(0, 99))
@few
def test_order_does_not_matter(snapshot: Snapshot, options: DqoesSettings, seed: int) -> None:
    shuffled = random.Random(seed)
    mixed = dataclasses.replace(snapshot, endpoints=tuple(shuffled.sample(snapshot.endpoints, len(snapshot.endpoints))))
    assert passes(DqoesPolicy(options), snapshot) == passes(DqoesPolicy(options), mixed)
