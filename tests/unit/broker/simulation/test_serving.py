"""Jobs that feed endpoints which applications ask."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.simulation import scenario, steps
from tiercel.broker.scheduling.interface import Assignment, Plan, Snapshot
from tiercel.broker.simulation import simulate
from tiercel.broker.simulation.endpoints import EndpointTraffic
from tiercel.broker.simulation.requests import ConstantRate
from tiercel.broker.simulation.scenario import Scenario, equal_nodes
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob
from tiercel.core.shares import Share

# Two requests a second of a quarter of a CPU second: half a core.
HALF_A_CORE = EndpointTraffic(
    name="digits", work_cpu_seconds=0.25, rate=ConstantRate(2.0), node_id="node1", quality=0.25
)


def fed(load: EndpointTraffic, duration: float = 20.0) -> Scenario:
    jobs = ListedJobs((PlannedJob(0.0, steps(0.5, 0.75, tiers=(0.5, 0.75)), endpoint=load.name),))
    return replace(scenario(cores=1.0), jobs=jobs, endpoints=(load,), duration_seconds=duration)


def test_serving_comes_first_and_training_gets_the_rest() -> None:
    result = simulate(fed(HALF_A_CORE), "fair")
    (job,) = result.jobs
    assert [tier.reached_seconds for tier in job.tiers] == [4.0, 6.0]
    (endpoint,) = result.endpoints
    assert (endpoint.requests, endpoint.answered, endpoint.cpu_seconds) == pytest.approx((40.0, 40.0, 10.0))


def test_quality_steps_up_when_a_tier_is_delivered() -> None:
    result = simulate(fed(HALF_A_CORE), "fair")
    # 0.25 until 4.5 s, 0.5 until 6.5 s, 0.75 until 20 s, at two requests a second; there is no objective to miss.
    assert result.served_quality == pytest.approx(2 * (4.5 * 0.25 + 2.0 * 0.5 + 13.5 * 0.75))


def test_an_endpoint_without_a_version_is_asked_from_its_first_delivery_on() -> None:
    result = simulate(fed(replace(HALF_A_CORE, node_id="", quality=None)), "fair")
    (job,) = result.jobs
    # Alone until the first tier is there at 2 s; delivered at 2.5 s; then half a core.
    assert job.tiers[1].reached_seconds == pytest.approx(2.5 + 0.5 / 0.5)
    assert result.endpoints[0].requests == pytest.approx(2 * (20.0 - 2.5))


class Halves:
    """Gives every endpoint a tenth of its node and the job the rest."""

    name: str = "halves"

    def initial_state(self) -> None:
        return None

    def plan(self, snapshot: Snapshot, state: None) -> tuple[Plan, None]:
        training = Share(1 - 0.1 * len(snapshot.endpoints), reason="training")
        assignments = tuple(Assignment(job.id, "node1", training) for job in snapshot.jobs)
        shares = {endpoint.name: Share(0.1, reason="serving") for endpoint in snapshot.endpoints}
        return Plan(assignments=assignments, endpoint_shares=shares), state


def test_an_endpoint_with_a_share_competes_with_training() -> None:
    result = simulate(fed(HALF_A_CORE), Halves())
    (job,) = result.jobs
    assert [tier.reached_seconds for tier in job.tiers] == [pytest.approx(2 / 0.9), pytest.approx(3 / 0.9)]
    # What waited meanwhile was answered when training was over.
    assert result.endpoints[0].answered == pytest.approx(40.0)
    assert result.endpoints[0].mean_delay_seconds > simulate(fed(HALF_A_CORE), "fair").endpoints[0].mean_delay_seconds  # type: ignore[operator]


def test_what_an_endpoint_leaves_goes_to_training_and_what_training_cannot_use_to_endpoints() -> None:
    busy = replace(HALF_A_CORE, name="busy", rate=ConstantRate(100.0), threads=2.0)
    idle = replace(HALF_A_CORE, name="idle", rate=ConstantRate(0.4))
    jobs = ListedJobs((PlannedJob(0.0, steps(*[0.1] * 40)),))
    planned = replace(scenario(cores=1.0), jobs=jobs, endpoints=(busy, idle), duration_seconds=10.0, record_usage=True)
    first = simulate(planned, Halves())
    # A tenth of the core each, of which the idle one is content with that; the job has the other eight tenths.
    assert [endpoint.cpu_seconds for endpoint in first.endpoints] == pytest.approx([1.0, 1.0])
    assert first.jobs[0].usage[0].cores == pytest.approx(0.8)
    # A second core, which the job cannot use, is for endpoints.
    second = simulate(replace(planned, nodes=equal_nodes(1, 2.0)), Halves())
    assert second.jobs[0].usage[0].cores == pytest.approx(1.0)
    assert [endpoint.cpu_seconds for endpoint in second.endpoints] == pytest.approx([9.0, 1.0])


def test_policies_see_endpoints_with_what_was_measured() -> None:
    seen: list[Snapshot] = []

    class Watching(Halves):
        def plan(self, snapshot: Snapshot, state: None) -> tuple[Plan, None]:
            seen.append(snapshot)
            return super().plan(snapshot, state)

    simulate(replace(fed(replace(HALF_A_CORE, objective_seconds=0.5)), measurement_noise=0.0), Watching())
    last = seen[-1].endpoints[0]
    assert (last.name, last.node_id, last.quality, last.objective_seconds) == ("digits", "node1", 0.75, 0.5)
    assert (last.requests_per_second, last.cpu_cores_used, last.delay_seconds) == pytest.approx((2.0, 0.5, 0.5))
    # A quarter of a second of work, a quarter of a wait in the mean: 1 - exp(-1) of them wait no longer than that.
    assert last.in_objective == pytest.approx(1 - math.exp(-1))
    assert last.share is not None


def test_an_endpoint_goes_where_its_newest_version_was_made() -> None:
    nodes = equal_nodes(2, 1.0)
    jobs = ListedJobs(
        (PlannedJob(0.0, steps(*[0.1] * 30)), PlannedJob(0.5, steps(0.5, tiers=(0.5,)), endpoint="digits"))
    )
    planned = replace(fed(HALF_A_CORE, 10.0), nodes=nodes, jobs=jobs, record_usage=True)
    beside, feeding = simulate(planned, "fair").jobs
    # The first one shares node1 with the endpoint until the second one's model goes live on node2 at 3 s.
    assert feeding.nodes == ("node2",)
    assert feeding.tiers[0].delivered_seconds == pytest.approx(2.5)
    assert [(each.at, each.cores) for each in beside.usage[:2]] == [(0.0, 0.5), (3.0, 1.0)]
