from __future__ import annotations

import pytest

from benchmarks.simulated_endpoints import CASES, PER_NODE, POLICIES, Case, measure, summarise
from tiercel.broker.scheduling.registry import create_policy


@pytest.mark.parametrize("arrivals", ["burst", "fixed", "random"])
def test_dqoes_satisfies_most_and_equal_shares_few(arrivals: str) -> None:
    case = Case(1, "varied", arrivals)
    dqoes, fair = measure(case, "dqoes", [1, 2, 3]), measure(case, "fair", [1, 2, 3])
    assert min(dqoes["satisfied"]) >= 9
    assert min(dqoes["in_time"]) >= 9
    assert sum(dqoes["satisfied"]) > 4 * sum(fair["satisfied"])


def test_every_service_has_a_node_and_its_own_objective() -> None:
    scenario = Case(4, "varied", "random").scenario(1)
    assert len({load.name for load in scenario.endpoints}) == 4 * PER_NODE
    assert len({load.objective_seconds for load in scenario.endpoints}) == 4 * PER_NODE
    assert {load.node_id for load in scenario.endpoints} == {node.id for node in scenario.nodes}
    # what it takes to meet all objectives of a node exactly
    needed = [load.work_cpu_seconds / (load.objective_seconds or 1.0) for load in scenario.endpoints[:PER_NODE]]
    assert sum(needed) == pytest.approx(0.95)


def test_all_policies_exist_and_cases_differ() -> None:
    for name, options in POLICIES.values():
        create_policy(name, options)
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_summary() -> None:
    assert summarise([1.0, 2.0, 3.0, 4.0, 5.0]) == {"mean": 3.0, "low": 2.0, "median": 3.0, "high": 4.0}
