from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import simulated_served
from benchmarks.simulated_served import (
    ABLATIONS,
    ARMS,
    LOADS,
    OURS,
    RIVALS,
    Served,
    bars_of,
    measure,
    scenario,
    table_of,
)
from benchmarks.simulated_workloads import FAIR_SLICES
from tiercel.broker.scheduling.registry import create_policy


def test_every_policy_exists_and_ours_are_no_rivals() -> None:
    for arm, policy in ARMS.items():
        create_policy(policy, dict(ABLATIONS.get(arm, {})))
    assert set(ARMS) == {*RIVALS, *OURS, *ABLATIONS}
    assert set(RIVALS).isdisjoint(OURS)


@pytest.mark.parametrize("load", LOADS)
def test_each_node_has_an_endpoint_and_earlier_runs_are_known_where_they_should_be(load: float) -> None:
    found = scenario(load, "utility")
    assert len(found.endpoints) == len(found.nodes)
    assert set(found.history) == {planned.workload.name for planned in found.jobs.draw(1)}
    assert not scenario(load, "utility, nothing known").history


def test_long_time_slices_are_a_baseline_of_their_own() -> None:
    fair, sliced = scenario(0.3, "fair"), scenario(0.3, FAIR_SLICES)
    assert sliced.machines.colocation.penalty < fair.machines.colocation.penalty
    assert replace(sliced, machines=fair.machines) == fair


def test_each_job_has_an_endpoint_of_its_own_where_none_has_a_version_and_as_much_is_asked_in_all() -> None:
    new, old = scenario(0.7, "utility", new=True), scenario(0.7, "utility")
    assert [(each.node_id, each.quality) for each in new.endpoints] == [("", None)] * simulated_served.JOBS
    assert {planned.endpoint for planned in new.jobs.draw(1)} == {each.name for each in new.endpoints}
    constant = [each.rate.per_second(0.0, 1) for each in (old.endpoints[0], new.endpoints[0]) if each.rate is not None]
    assert constant[0] * len(old.endpoints) == pytest.approx(constant[1] * len(new.endpoints))


@pytest.mark.parametrize("new", [False, True])
def test_fair_is_what_others_are_measured_by(monkeypatch: pytest.MonkeyPatch, *, new: bool) -> None:
    monkeypatch.setattr(simulated_served, "JOBS", 6)
    monkeypatch.setattr(simulated_served, "NODES", 2)
    found = measure((0.3, 1, new))
    assert set(found) == set(ARMS)
    assert found["fair"][0] == 1.0
    assert all(0 < quality < 2 and 0 < in_time <= 1 for quality, in_time in found.values())


def _found(ours: float, fifo: float) -> list[dict[str, Served]]:
    quality = {**dict.fromkeys(ARMS, 1.0), **dict.fromkeys(OURS, ours), "fifo": fifo}
    return [{arm: (value, 0.9) for arm, value in quality.items()}] * 3


def test_a_bar_is_missed_where_any_other_policy_serves_better() -> None:
    assert all(bar.holds for bar in bars_of({"loads": {"0.5": table_of(_found(1.2, 1.1))}}))
    missed = bars_of({"loads": {"0.5": table_of(_found(1.1, 1.2))}})
    assert not any(bar.holds for bar in missed)
    assert "(fifo)" in missed[0].name
    (first, _, *_) = bars_of({"loads": {}, "first_versions": {"0.3": table_of(_found(1.2, 1.1))}})
    assert first.name.startswith("load 30%, no version at first: ")


def test_the_table_has_every_policy() -> None:
    table = table_of(_found(1.2, 1.1))
    assert table["utility"]["served_quality"]["mean"] == pytest.approx(1.2)
    assert table["fair"]["in_objective"] == pytest.approx(0.9)
