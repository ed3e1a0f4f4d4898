from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.figures import COMPARED, NUMBER, PERCENT, SIZE
from tiercel.core.figures import compared, number, percent, size

ANY = st.floats(-1e307, 1e307)


def test_parts_and_metrics_read_as_the_table_says() -> None:
    assert {part: percent(part) for part in PERCENT} == PERCENT
    assert {value: number(value) for value in NUMBER} == NUMBER
    assert {pair: compared(*pair) for pair in COMPARED} == COMPARED
    assert {count: size(count) for count in SIZE} == SIZE


@pytest.mark.parametrize(("value", "words"), [(float("nan"), "nan"), (float("inf"), "inf"), (-0.0, "0")])
def test_what_is_no_figure_is_said_as_it_is(value: float, words: str) -> None:
    assert number(value) == words


@given(ANY)
def test_a_figure_is_read_as_nearly_what_it_is(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=5.1e-4, abs=0)


@given(ANY, ANY)
def test_figures_that_differ_never_read_alike(value: float, other: float) -> None:
    first, second = compared(value, other)
    assert (first == second) == (value == other)
