"""A few cases from beginning to end: what must hold of any, and what is told of them."""

from __future__ import annotations

import pytest

from benchmarks import heterogeneous
from benchmarks.heterogeneous import KINDS, LONG, SMALL, bars_of, drawn, long_case, section_of, small_case


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must hold does so for any number of them."""
    monkeypatch.setattr(heterogeneous, "DRAWS", 2)


@pytest.mark.parametrize("kinds", KINDS)
def test_nobody_earns_more_than_the_optimum(kinds: int) -> None:
    case = drawn(7, kinds, SMALL)
    assert len(case.pool.kinds) == kinds
    assert len(case.times) == SMALL
    earned = small_case(case)["earned"]
    assert set(earned) == {"heuristic", "at once", "learned", "look-ahead", "optimum"}
    assert all(value <= earned["optimum"] for value in earned.values())


def test_what_is_told_is_made_of_the_cases() -> None:
    long = [long_case(drawn(seed, 2, LONG)) for seed in (1, 2)]
    figures = {"small": [small_case(drawn(seed, 2, SMALL)) for seed in (1, 2)], "long": long}
    bars = bars_of(figures)
    gains = [each["earned"]["heuristic"] - each["earned"]["at once"] for each in long]
    # Student's t of one degree of freedom is 12.706; the standard error of two is half of their distance.
    assert bars[0].value == pytest.approx(sum(gains) / 2 - 12.706 * abs(gains[0] - gains[1]) / 2, abs=1e-4)
    assert "| 2 kinds | 2 |" in section_of(figures, bars, "a command")
