"""What holds in every simulation, whatever the scenario and the policy."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.broker.scheduling.interface import NodeView
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.scheduling.registry import BUILT_IN
from tiercel.broker.simulation import DrawnJobs, MachineSettings, Result, Scenario, Workload, equal_nodes, simulate
from tiercel.broker.simulation.accelerated import equipped
from tiercel.broker.simulation.accelerators import AcceleratorUser, limited_by_accelerators
from tiercel.broker.simulation.arrivals import AllAtOnce, Arrivals, Poisson, Uniform
from tiercel.broker.simulation.bounds import Task, pooled_mean, srpt_mean, tier_tasks
from tiercel.broker.simulation.cluster import Colocation, PenaltyModel
from tiercel.broker.simulation.curves import Family, FamilyCurve
from tiercel.broker.simulation.endpoints import EndpointTraffic, SimulatedEndpoint
from tiercel.broker.simulation.nodes import SimulatedNode
from tiercel.broker.simulation.presets import mixed_jobs, with_endpoints
from tiercel.broker.simulation.requests import ConstantRate
from tiercel.core.filling import fill
from tiercel.core.jobs import JobState, Resources, Tier
from tiercel.core.shares import AcceleratorShare, Share

GIB = 1024**3
CORES = 2.0
DEVICES = 2

few = settings(max_examples=7, deadline=None)


@st.composite
def workloads(draw: st.DrawFn, name: str) -> Workload:
    targets = sorted(draw(st.sets(st.sampled_from([0.3, 0.6, 0.8, 0.9, 0.97]), min_size=1, max_size=3)))
    devices = draw(st.sampled_from([0, 0, 1, 2]))
    return Workload(
        name=name,
        curve=FamilyCurve(draw(st.sampled_from(Family)), 0.1, 0.95, draw(st.floats(0.5, 8.0))),
        tiers=tuple(Tier(target) for target in targets),
        startup_cpu_seconds=draw(st.sampled_from([0.0, 0.5, 2.0])),
        epoch_cpu_seconds=draw(st.sampled_from([0.3, 1.0, 2.5])),
        max_epochs=draw(st.integers(1, 15)),
        continue_after_last_tier=draw(st.booleans()),
        noise=draw(st.sampled_from([0.0, 0.01])),
        speed_spread=draw(st.sampled_from([0.0, 0.2])),
        resources=Resources(
            draw(st.sampled_from([0.5, 1.0, 2.0])),
            draw(st.sampled_from([GIB, 30 * GIB])),
            devices,
            draw(st.sampled_from([0, GIB, 9 * GIB])) if devices else 0,
        ),
        accelerator_intensity=draw(st.sampled_from([0.2, 1.0, 3.0])) if devices else 0.0,
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    kinds = tuple(draw(workloads(f"w{number}")) for number in range(draw(st.integers(1, 3))))
    processes: list[Arrivals] = [AllAtOnce(), Poisson(0.5), Uniform(10.0)]
    arrivals = draw(st.sampled_from(processes))
    penalty = draw(st.sampled_from([Colocation(0.0), Colocation(0.28), Colocation(0.2, PenaltyModel.HARMONIC)]))
    return Scenario(
        nodes=tuple(equipped(node, DEVICES) for node in equal_nodes(draw(st.integers(1, 3)), CORES)),
        jobs=DrawnJobs(kinds, draw(st.integers(1, 12)), arrivals),
        machines=MachineSettings(colocation=penalty, spawn_seconds=draw(st.sampled_from([0.0, 0.3]))),
        loop=LoopSettings(interval_seconds=1.0, gather_seconds=draw(st.sampled_from([0.0, 0.5]))),
        random_placement=draw(st.booleans()),
        reports_every=draw(st.sampled_from([1, 3])),
        record_usage=True,
    )


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
@few
@given(planned=scenarios(), seed=st.integers(0, 5))
def test_no_job_is_lost_and_nothing_is_used_twice(policy: str, planned: Scenario, seed: int) -> None:
    result = simulate(planned, policy, seed)
    drawn = planned.jobs.draw(seed)
    assert [job.arrived_at for job in result.jobs] == [job.arrives_at for job in drawn]
    assert all(job.state in {JobState.COMPLETED, JobState.MISSED} for job in result.jobs)
    assert result.missed_tiers() == 0
    assert_capacity_is_kept(result)
    for job in result.jobs:
        assert job.started_at is not None
        assert job.arrived_at <= job.started_at <= job.finished_at
        # What was learnt had to be worked for: nobody is faster than alone.
        assert job.completion_seconds >= job.alone_seconds - 1e-6
        reached = [tier.reached_seconds for tier in job.tiers if tier.reached_seconds is not None]
        assert reached == sorted(reached)


def assert_capacity_is_kept(result: Result) -> None:
    """At no time do the jobs of a node use more than its cores and devices, nor any job more than its own."""
    changes: dict[str, list[tuple[float, int, str, float, float]]] = defaultdict(list)
    for job in result.jobs:
        for index, usage in enumerate(job.usage):
            assert usage.cores <= job.cpu_cores + 1e-9
            assert usage.accelerator <= 1 + 1e-6
            devices = usage.accelerator * job.accelerators
            changes[usage.node_id].append((usage.at, index, job.id, usage.cores, devices))
        assert job.usage[-1].cores == 0.0
    for events in changes.values():
        used: dict[str, float] = {}
        busy: dict[str, float] = {}
        last = -1.0
        for at, _, job_id, cores, devices in sorted(events):
            if at > last:
                assert math.fsum(used.values()) <= CORES + 1e-9
                assert math.fsum(busy.values()) <= DEVICES + 1e-6  # CPU and devices are divided in turns, to a grain
            used[job_id], busy[job_id], last = cores, devices, at
        assert not any(used.values())
        assert not any(busy.values())


@few
@given(planned=scenarios(), seed=st.integers(0, 5))
def test_twice_the_same_is_the_same(planned: Scenario, seed: int) -> None:
    assert simulate(planned, "tradl", seed) == simulate(planned, "tradl", seed)


@few
@given(planned=scenarios(), seed=st.integers(0, 5))
def test_the_pooled_bound_is_one(planned: Scenario, seed: int) -> None:
    result = simulate(planned, "srpt-oracle", seed)
    tasks = tier_tasks(result, 1)
    if tasks:
        assert result.mean_time_to_tier(1) >= pooled_mean(tasks, CORES * len(planned.nodes)) - 1e-6


@given(
    demands=st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from([None, 0.1, 0.4])), min_size=1, max_size=5),
    cores=st.sampled_from([1.0, 2.0]),
)
def test_endpoints_use_no_more_than_their_node_has(demands: list[tuple[float, float | None]], cores: float) -> None:
    endpoints = []
    for number, (rate, weight) in enumerate(demands):
        load = EndpointTraffic(name=f"e{number}", work_cpu_seconds=0.05, rate=ConstantRate(rate), node_id="node")
        endpoint = SimulatedEndpoint.begin(load, 0)
        endpoint.refresh_rate(0.0)
        # Weights of a plan add up to 1 at most; here only their ratios matter.
        endpoint.share = Share(weight / len(demands), reason="some") if weight is not None else None
        endpoints.append(endpoint)
    SimulatedNode(NodeView("node", cores, GIB), Colocation(), endpoints=endpoints).reallocate(0.0)
    assert math.fsum(endpoint.used_cores for endpoint in endpoints) <= cores + 1e-9
    for endpoint in endpoints:
        assert endpoint.used_cores <= endpoint.cores <= endpoint.ceiling + 1e-9
    for endpoint in endpoints:
        endpoint.advance(10.0)
        total = endpoint.total
        assert total.answered <= total.arrived + 1e-6
        assert total.in_objective <= total.answered + 1e-6
        assert total.cpu_seconds <= 10 * cores + 1e-6


tasks = st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 20)), min_size=1, max_size=20)


@given(drawn=tasks, machines=st.integers(1, 4))
def test_more_machines_are_never_slower_and_pooling_them_is_a_bound(drawn: list[Task], machines: int) -> None:
    mean = srpt_mean(drawn, machines)
    assert pooled_mean(drawn, machines) <= mean + 1e-9
    assert mean <= srpt_mean(drawn, 1) + 1e-9
    longest = math.fsum(work for _, work in drawn)
    assert mean >= math.fsum(work for _, work in drawn) / len(drawn) - 1e-9
    assert mean <= longest + 1e-9


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
@settings(max_examples=4, deadline=None)
@given(load=st.sampled_from([0.1, 0.5, 0.95, 1.5]), seed=st.integers(0, 5))
def test_training_beside_serving_loses_no_job_and_counts_no_request_twice(policy: str, load: float, seed: int) -> None:
    planned = with_endpoints(mixed_jobs(8, 2), load=load, duration_seconds=40.0)
    result = simulate(planned, policy, seed)
    assert result == simulate(planned, policy, seed)
    assert all(job.state in {JobState.COMPLETED, JobState.MISSED} for job in result.jobs)
    for endpoint in result.endpoints:
        assert endpoint.in_objective <= endpoint.answered + 1e-6 <= endpoint.requests + 2e-6
        assert endpoint.served_quality <= endpoint.in_objective + 1e-6
        assert endpoint.cpu_seconds <= 40.0 * CORES + 1e-6
    used = math.fsum(job.cpu_seconds for job in result.jobs)
    used += math.fsum(endpoint.cpu_seconds for endpoint in result.endpoints)
    assert used <= result.ended_at * CORES * len(planned.nodes) + 1e-6
    assert all(count.over + count.satisfied + count.under <= len(result.endpoints) for count in result.class_counts)


@st.composite
def device_users(draw: st.DrawFn) -> list[AcceleratorUser]:
    return [
        AcceleratorUser(
            index,
            draw(st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0])),
            tuple(
                AcceleratorShare(device, draw(st.sampled_from([0.001, 0.1, 0.5, 1.0])), GIB)
                for device in draw(st.sets(st.sampled_from("abc"), min_size=1))
            ),
        )
        for index in range(draw(st.integers(0, 8)))
    ]


@given(users=device_users(), cores=st.sampled_from([0.5, 2.0, 8.0]), ceiling=st.sampled_from([0.5, 1.0, 4.0]))
def test_no_device_is_given_out_twice(users: list[AcceleratorUser], cores: float, ceiling: float) -> None:
    """The last one who shares the CPU uses no device."""
    weights, ceilings = [1.0] * (len(users) + 1), [ceiling] * (len(users) + 1)
    limits = limited_by_accelerators(users, weights, ceilings, cores)
    assert all(0 <= limit <= ceiling for limit in limits)
    assert limits[-1] == ceiling
    given_cores = fill(weights, limits, cores)
    for device in "abc":
        on_it = [user for user in users if device in {share.id for share in user.devices}]
        assert math.fsum(given_cores[user.index] * user.intensity for user in on_it) <= 1 + 1e-6
