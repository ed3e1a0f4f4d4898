"""The same work where a restart is cheap and where it is dear: ``utility`` learns which, and moves jobs accordingly."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest

from benchmarks.simulated_workloads import kinds
from tiercel.broker.scheduling.restarts import Restarts
from tiercel.broker.simulation import simulate

SEEDS = range(1004, 1014)  # moves are rare


def moves(startup_seconds: float, checkpoint_seconds: float) -> int:
    """Of jobs on small nodes, where starting a run and checkpointing it take that, over all seeds."""
    kind = next(kind for kind in kinds("reported") if kind.name == "hopeless")
    kind = replace(kind, nodes=5, cores=1.0)  # what was foretold wrongly soon lets one of them idle
    programs = tuple(replace(each, startup_cpu_seconds=startup_seconds) for each in kind.workloads)
    found = 0
    for seed in SEEDS:
        scenario = replace(kind, workloads=programs).scenario(seed, history=True)
        machines = replace(scenario.machines, checkpoint_seconds=checkpoint_seconds)
        found += simulate(replace(scenario, machines=machines), "utility", seed).migrations
    return found


def test_who_restarts_quickly_is_moved_more_often_and_who_does_not_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheap, dear = moves(0.05, 0.1), moves(10.0, 3.0)
    assert cheap > 2 * dear
    monkeypatch.setattr(Restarts, "by_workload", lambda _: types.MappingProxyType({}))
    unknown = moves(10.0, 3.0)
    assert unknown > dear, "who knows nothing of the price pays it too often"
