from __future__ import annotations

import pytest

from benchmarks.simulated_accelerators import (
    DEVICES,
    INTENSITIES,
    POLICIES,
    PROGRAMS,
    UNKNOWING,
    Figures,
    bars_of,
    measure,
    programs,
    scenario,
    table,
)


def test_half_of_the_programs_use_an_accelerator_as_much_as_each_of_the_kinds() -> None:
    found = programs()
    assert len({each.name for each in found}) == PROGRAMS
    used = [each.accelerator_intensity for each in found if each.resources.accelerators]
    assert len(used) == PROGRAMS // 2
    assert {used.count(intensity) for intensity in INTENSITIES} == {len(used) // len(INTENSITIES)}


@pytest.mark.parametrize("devices", DEVICES)
def test_every_node_has_so_many_devices_and_every_program_a_past_only_for_who_may_know_it(devices: int) -> None:
    known, unknown = scenario(devices, history=True), scenario(devices, history=False)
    assert all(len(node.accelerators) == devices for node in known.nodes)
    assert set(known.history) == {each.name for each in programs()}
    assert unknown.history == {}


def test_a_simulation_is_the_same_twice_and_its_figures_make_sense() -> None:
    figures = measure((2, "fair", 1))
    assert figures == measure((2, "fair", 1))
    assert 0 < figures.first < figures.second < figures.finish
    assert 0 < figures.utilisation <= 1
    assert figures.missed == 0


def test_times_are_against_fair_and_bars_compare_what_they_say() -> None:
    fair, better = Figures(10.0, 20.0, 30.0, 0.5, 0), Figures(8.0, 20.0, 33.0, 0.6, 0)
    rows = table({policy: [better if policy == "utility" else fair] * 2 for policy in POLICIES})
    assert rows["utility"]["time_to_tier_1"]["mean"] == pytest.approx(0.8)
    assert rows[UNKNOWING]["mean_finish"]["mean"] == 1.0
    below, least, kept, finish, rival = bars_of({"tables": {"1": rows}})
    assert [bar.holds for bar in (below, least, kept, finish, rival)] == [True, True, True, False, True]
    assert finish.value == pytest.approx(1.1)
    assert below.value == pytest.approx(20.0)
    assert kept.value == pytest.approx(1.2)
