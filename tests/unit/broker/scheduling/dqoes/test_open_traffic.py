"""DQoES-style scheduling where requests come by themselves, whatever the delay: queues, not clients that wait."""

from __future__ import annotations

import pytest

from tiercel.broker.simulation import Result, Scenario, equal_nodes, simulate
from tiercel.broker.simulation.endpoints import EndpointTraffic
from tiercel.broker.simulation.requests import ConstantRate

WORK = 0.02


def run(*endpoints: tuple[float, float]) -> Result:
    """Two cores for ten minutes, and endpoints given by objective in seconds and requests per second."""
    loads = tuple(
        EndpointTraffic(
            name=f"e{number}",
            work_cpu_seconds=WORK,
            rate=ConstantRate(rate),
            objective_seconds=objective,
            node_id="node1",
        )
        for number, (objective, rate) in enumerate(endpoints)
    )
    return simulate(Scenario(nodes=equal_nodes(1, 2.0), endpoints=loads, duration_seconds=600.0), "dqoes", seed=1)


@pytest.mark.parametrize(
    "endpoints",
    [[(0.1, 5.0)] * 3, [(0.5, 20.0), (0.05, 20.0), (0.1, 20.0)], [(2.0, 10.0)]],
    ids=["light", "mixed", "lax"],
)
def test_the_mean_delay_comes_to_the_objective_and_nothing_is_left_unanswered(
    endpoints: list[tuple[float, float]],
) -> None:
    result = run(*endpoints)
    assert result.mean_satisfied() >= len(endpoints) - 0.2
    for outcome, (objective, _) in zip(result.endpoints, endpoints, strict=True):
        assert outcome.mean_delay_seconds == pytest.approx(objective, rel=0.2)
        assert outcome.answered == pytest.approx(outcome.requests, rel=0.01)


def test_where_not_all_objectives_can_be_met_nobody_falls_behind() -> None:
    # their work takes 1.7 of the two cores, and to meet the objectives would take 2.2
    for outcome in run((1.0, 35.0), (0.05, 25.0), (0.2, 25.0)).endpoints:
        assert outcome.answered == pytest.approx(outcome.requests, rel=0.01)
        assert outcome.mean_delay_seconds is not None
        assert outcome.mean_delay_seconds < 2.0
