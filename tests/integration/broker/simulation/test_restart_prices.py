"""The same work where a restart is cheap and where it is dear: ``utility`` learns which, and moves jobs accordingly."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest

from benchmarks.simulated_workloads import kinds
from tiercel.broker.scheduling.restarts import Restarts
from tiercel.broker.simulation import simulate
from tiercel.broker.simulation.result import Result

SEED = 1001


def result(startup_seconds: float, checkpoint_seconds: float) -> Result:
    """Sixteen programs on several nodes, where starting a run and checkpointing it take that."""
    kind = next(kind for kind in kinds("reported") if kind.name == "hopeless")
    programs = tuple(replace(each, startup_cpu_seconds=startup_seconds) for each in kind.workloads)
    scenario = replace(kind, workloads=programs).scenario(SEED, history=True)
    machines = replace(scenario.machines, checkpoint_seconds=checkpoint_seconds)
    return simulate(replace(scenario, machines=machines), "utility", SEED)


def test_who_restarts_quickly_is_moved_more_often_and_who_does_not_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheap, dear = result(0.05, 0.1), result(10.0, 3.0)
    assert cheap.migrations > 2 * dear.migrations
    monkeypatch.setattr(Restarts, "by_workload", lambda _: types.MappingProxyType({}))
    unknown = result(10.0, 3.0)
    assert unknown.migrations > dear.migrations, "who knows nothing of the price pays it too often"
