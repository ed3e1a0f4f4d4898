"""What is concluded from requests to three machines of which some are cut off."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cluster.__main__ import section_of
from benchmarks.cluster.bars import (
    ANSWERING,
    BYSTANDER,
    OWN,
    ROUND_ROBIN,
    TWO_CHOICES,
    bars_of,
    counts_of,
    cut_of,
    failed_between,
)
from benchmarks.cluster.front import round_robin, two_choices
from tiercel.serving.routing.choosing import Candidate, Load

CUT_OFF = {"node": "n2", "here": 3, "elsewhere": 0, "elsewhere_seconds": 0.5, "back_seconds": 4.0}
CUT, BACK, END = 10.0, 20.0, 40.0


def line(node: str, began: float, ended: float, outcome: str = "failed") -> dict[str, Any]:
    return {"node": node, "began": began, "ended": ended, "outcome": outcome, "why": "TimeoutError"}


LINES = [
    line("n1", 1.0, 1.1, "answered"),
    line("n2", 9.9, 12.9),
    line("n2", 13.0, 16.0),
    line("n1", 9.5, 12.5),
    line("n3", 5.0, 6.0),
    line("n2", 21.0, 23.5),
    line("n2", 41.0, 42.0),
]


def test_what_a_cut_cost() -> None:
    assert cut_of(LINES, "n2", CUT, BACK, END) == {
        "node": "n2",
        "seconds": 10.0,
        "here": 3,
        "elsewhere": 1,
        "elsewhere_seconds": -0.5,
        "in_flight": 2,
        "back_seconds": 3.5,
        "why": {"TimeoutError": 4},
    }
    assert cut_of(LINES[:1], "n2", CUT, BACK, END)["back_seconds"] == 0.0
    assert counts_of(LINES)["n1"] == {"answered": 1, "wrong": 0, "failed": 1}
    assert len(failed_between(LINES, 4.0, 9.0)) == 1


def figures(**changes: Any) -> dict[str, Any]:
    well = {"answered": 5, "wrong": 0, "failed": 0}
    found = {
        "lease_seconds": 10.0,
        "replicas": 1,
        "join_seconds": [20.0, 30.0],
        "counts": {"n1": well, "n2": well, "n3": well},
        "moving": {"failed": 0},
        "cuts": {BYSTANDER: CUT_OFF, ANSWERING: {**CUT_OFF, "elsewhere": 100}},
        "failed_after": 0,
    }
    return found | changes


def test_all_holds_where_only_those_failed_who_had_to() -> None:
    bars = bars_of(figures())
    assert all(bar.holds for bar in bars)
    assert "| wrong answers | 0 | == 0 | yes |" in section_of({}, bars)


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"counts": {"n1": {"answered": 5, "wrong": 1, "failed": 0}}}, ["addresses that were asked", "wrong answers"]),
        ({"join_seconds": [181.0]}, ["second machine: from the token to its running job"]),
        ({"moving": {"failed": 1}}, ["failed while the job moved and its endpoint with it"]),
        (
            {"replicas": 2, "cuts": {BYSTANDER: CUT_OFF, ANSWERING: CUT_OFF | {"elsewhere_seconds": 1.5}}},
            ["other addresses failed after the one that answers was cut off, for"],
        ),
        ({"failed_after": 2}, ["failed once all were back"]),
    ],
)
def test_what_does_not_hold_is_told(changes: dict[str, Any], missed: list[str]) -> None:
    assert [bar.name for bar in bars_of(figures(**changes)) if not bar.holds] == missed


def spread_figures(**changes: Any) -> dict[str, Any]:
    delays = {OWN: {"p99_ms": 90.0}, ROUND_ROBIN: {"p99_ms": 150.0}, TWO_CHOICES: {"p99_ms": 100.0}}
    return {"rates": {"one": 30.0, "two": 57.0}, "delays": delays, "failed": 0} | changes


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, 0),
        ({"rates": {"one": 30.0, "two": 51.0}}, 1),
        ({"delays": {OWN: {"p99_ms": 120.0}, ROUND_ROBIN: {"p99_ms": 150.0}, TWO_CHOICES: {"p99_ms": 100.0}}}, 1),
        ({"failed": 1}, 1),
    ],
)
def test_what_has_to_hold_of_two_nodes_that_have_a_model(changes: dict[str, Any], broken: int) -> None:
    bars = bars_of(figures(spread=spread_figures(**changes)))
    assert sum(not bar.holds for bar in bars) == broken


def test_what_is_chosen_by_others_than_the_product() -> None:
    busy, idle = Candidate(Load(3, 0.001, 0.0)), Candidate(Load(0, 1.0, 0.0))
    choose = round_robin()
    assert [choose([busy, idle], 0.0, lambda _: 0) for _ in range(4)] == [0, 1, 0, 1]
    for first in (0, 1):
        draws = iter([first, 0])
        assert two_choices([busy, idle], 0.0, lambda _, draws=draws: next(draws)) == 1  # type: ignore[misc]
    assert two_choices([busy], 0.0, lambda _: 0) == 0
