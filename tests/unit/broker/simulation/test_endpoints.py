from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.simulation import closed_endpoints
from tiercel.broker.scheduling.interface import NodeView
from tiercel.broker.simulation import simulate
from tiercel.broker.simulation.cluster import Colocation
from tiercel.broker.simulation.endpoints import EndpointTraffic, SimulatedEndpoint, open_delay, part_within
from tiercel.broker.simulation.nodes import SimulatedNode
from tiercel.broker.simulation.requests import BurstyRate, ConstantRate, SinusoidalRate
from tiercel.broker.simulation.scenario import Scenario, equal_nodes
from tiercel.core.shares import Share

GIB = 1024**3


def begin(*loads: EndpointTraffic, cores: float = 1.0) -> tuple[SimulatedNode, list[SimulatedEndpoint]]:
    """A node without jobs that answers for these endpoints."""
    endpoints = [SimulatedEndpoint.begin(load, 0) for load in loads]
    for endpoint in endpoints:
        endpoint.node_id = "node"
        endpoint.refresh_rate(0.0)
    node = SimulatedNode(NodeView("node", cores, GIB), Colocation(), endpoints=endpoints)
    node.reallocate(0.0)
    return node, endpoints


def test_the_delay_is_that_of_a_processor_sharing_queue() -> None:
    # 5 requests a second of 0.1 CPU seconds on one core: utilisation 0.5, delay 0.1 / 0.5.
    assert open_delay(0.1, 5.0, 1.0) == pytest.approx(0.2)
    # Half a core: the answer alone takes 0.2 s, utilisation 1/2 with 2.5 requests a second.
    assert open_delay(0.1, 2.5, 0.5) == pytest.approx(0.4)
    # Two cores do not make one answer faster, but the queue shorter.
    assert open_delay(0.1, 5.0, 2.0) == pytest.approx(0.1 / 0.75)


def test_what_cannot_keep_up_has_no_finite_delay() -> None:
    assert open_delay(0.1, 10.0, 1.0) == math.inf
    assert open_delay(0.1, 1.0, 0.0) == math.inf


def test_without_load_the_objective_is_met_or_not() -> None:
    assert part_within(0.2, 0.1, 0.1) == 1.0
    assert part_within(0.05, 0.1, 0.1) == 0.0
    # One mean wait beyond the service time: 1 - 1/e.
    assert part_within(0.2, 0.1, 0.2) == pytest.approx(1 - math.exp(-1))
    assert part_within(1.0, 0.1, math.inf) == 0.0


def test_an_endpoint_needs_either_a_rate_or_clients() -> None:
    with pytest.raises(ValueError, match="either a rate or clients"):
        EndpointTraffic(name="e", work_cpu_seconds=0.1)
    with pytest.raises(ValueError, match="either a rate or clients"):
        EndpointTraffic(name="e", work_cpu_seconds=0.1, rate=ConstantRate(1.0), clients=1)


def test_counting_answers_good_answers_and_their_quality() -> None:
    load = EndpointTraffic(
        name="e", work_cpu_seconds=0.1, rate=ConstantRate(5.0), objective_seconds=0.2, node_id="node", quality=0.9
    )
    _, (endpoint,) = begin(load)
    endpoint.advance(10.0)
    total = endpoint.total
    assert (total.arrived, total.answered, total.cpu_seconds) == pytest.approx((50.0, 50.0, 5.0))
    assert total.delay_sum / total.answered == pytest.approx(0.2)
    good = 50 * (1 - math.exp(-1))
    assert (total.in_objective, total.quality_sum) == pytest.approx((good, 0.9 * good))


def test_what_cannot_be_answered_waits_and_is_given_up_in_the_end() -> None:
    # 20 requests a second of which 10 can be answered; nobody waits for longer than 3 seconds.
    load = EndpointTraffic(name="e", work_cpu_seconds=0.1, rate=ConstantRate(20.0), node_id="node", give_up_seconds=3.0)
    _, (endpoint,) = begin(load)
    endpoint.advance(2.0)
    assert (endpoint.total.answered, endpoint.backlog) == pytest.approx((20.0, 2.0))
    # Two CPU seconds are waiting, and the answer itself takes 0.1 s.
    assert endpoint.delay_seconds == pytest.approx(2.1)
    endpoint.advance(100.0)
    assert endpoint.backlog == pytest.approx(3.0)
    assert endpoint.delay_seconds == 3.0


def test_models_that_are_always_busy_share_what_there_is() -> None:
    loads = [EndpointTraffic(name=f"m{n}", work_cpu_seconds=3.0, clients=1, node_id="node") for n in range(10)]
    _, endpoints = begin(*loads)
    assert [endpoint.delay_seconds for endpoint in endpoints] == pytest.approx([30.0] * 10)


def test_shares_of_endpoints_divide_the_node_and_caps_hold() -> None:
    loads = [EndpointTraffic(name=f"m{n}", work_cpu_seconds=3.0, clients=1, node_id="node") for n in range(3)]
    node, (first, second, third) = begin(*loads)
    first.share = Share(0.6, reason="much")
    second.share = Share(0.3, cpu_cap_cores=0.1, reason="capped")
    third.share = Share(0.1, reason="little")
    node.reallocate(0.0)
    # 0.9 cores by 6 : 1.
    assert (first.cores, second.cores, third.cores) == pytest.approx((0.9 * 6 / 7, 0.1, 0.9 / 7))
    assert second.delay_seconds == pytest.approx(30.0)


def test_an_idle_neighbour_leaves_its_share_to_who_needs_it() -> None:
    busy = EndpointTraffic(name="busy", work_cpu_seconds=0.1, rate=ConstantRate(7.0), node_id="node")
    idle = EndpointTraffic(name="idle", work_cpu_seconds=0.1, rate=ConstantRate(1.0), node_id="node")
    node, (first, second) = begin(busy, idle)
    first.share, second.share = Share(0.5, reason="half"), Share(0.5, reason="half")
    node.reallocate(0.0)
    # Of one core the idle one uses 0.1 and may use what the busy one leaves, at least its half.
    assert (first.cores, second.cores) == pytest.approx((0.9, 0.5))
    assert first.delay_seconds == pytest.approx(0.1 / 0.9 / (1 - 0.7 / 0.9))


def test_fair_answers_models_all_alike_whatever_they_want() -> None:
    result = simulate(closed_endpoints([40.0] * 9 + [30.0]), "fair")
    assert [endpoint.mean_delay_seconds for endpoint in result.endpoints] == pytest.approx([30.0] * 10)
    assert (result.class_counts[-1].over, result.class_counts[-1].satisfied) == (9, 1)
    assert result.mean_satisfied() == 1.0


def test_what_is_measured_is_noisy_and_repeats_itself() -> None:
    load = EndpointTraffic(name="e", work_cpu_seconds=0.1, rate=ConstantRate(5.0), node_id="node")

    def measured() -> list[float | None]:
        _, (endpoint,) = begin(load)
        views = []
        for second in range(1, 5):
            endpoint.advance(float(second))
            views.append(endpoint.view(0.05))
        return [view.delay_seconds for view in views]

    delays = measured()
    assert delays == measured()
    assert len(set(delays)) == 4
    assert all(delay is not None and 0.15 < delay < 0.25 for delay in delays)


def test_a_moment_is_too_short_to_measure_anything_new() -> None:
    _, (endpoint,) = begin(EndpointTraffic(name="e", work_cpu_seconds=0.1, rate=ConstantRate(5.0), node_id="node"))
    endpoint.advance(1.0)
    first = endpoint.view(0.05)
    endpoint.advance(1.1)
    assert endpoint.view(0.05) == first


def test_rates() -> None:
    swing = SinusoidalRate(10.0, 5.0, 40.0)
    assert [swing.per_second(at, 0) for at in (0.0, 10.0, 30.0)] == pytest.approx([10.0, 15.0, 5.0])
    assert SinusoidalRate(1.0, 5.0, 40.0).per_second(30.0, 0) == 0.0
    bursts = BurstyRate(2.0, 20.0, 0.25, slot_seconds=1.0)
    slots = [bursts.per_second(float(slot), 7) for slot in range(4000)]
    assert slots.count(20.0) / len(slots) == pytest.approx(0.25, abs=0.03)
    assert [bursts.per_second(slot + 0.9, 7) for slot in range(50)] == slots[:50]
    assert [bursts.per_second(float(slot), 8) for slot in range(50)] != slots[:50]


def test_endpoints_need_a_duration_a_node_that_exists_and_a_name_of_their_own() -> None:
    load = EndpointTraffic(name="e", work_cpu_seconds=0.1, rate=ConstantRate(5.0))
    with pytest.raises(ValueError, match="duration_seconds"):
        Scenario(nodes=equal_nodes(1), endpoints=(load,))
    with pytest.raises(ValueError, match="on node nowhere, which the scenario lacks"):
        Scenario(nodes=equal_nodes(1), endpoints=(replace(load, node_id="nowhere"),), duration_seconds=1.0)
    with pytest.raises(ValueError, match="same name"):
        Scenario(nodes=equal_nodes(1), endpoints=(load, load), duration_seconds=1.0)
