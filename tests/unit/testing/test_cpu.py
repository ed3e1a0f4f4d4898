"""How measurements are judged: one window that fits by chance is not enough, and one that was disturbed is no harm."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.cpu import WINDOWS, judge


@pytest.mark.parametrize(
    ("windows", "verdict"),
    [
        ([], None),
        ([1.0, 1.0], None),
        ([1.0, 1.05, 0.95], True),
        ([2.0, 1.0, 2.0], None),
        ([2.0, 1.0, 2.0, 1.0, 2.0], False),
        ([2.0, 1.0, 0.1, 1.0, 1.0], True),
        ([2.0, 2.0, 0.1, 0.1, 1.0], True),
        ([0.5, 0.5, 0.5], False),
    ],
)
def test_the_median_is_judged(windows: list[float], verdict: bool | None) -> None:
    assert judge(windows, 1.0, 0.1) is verdict


@given(st.lists(st.floats(0.5, 1.5), min_size=WINDOWS, max_size=WINDOWS))
def test_an_early_verdict_is_that_of_all_windows(windows: list[float]) -> None:
    fits = 0.9 <= statistics.median(windows) <= 1.1
    verdicts = {judge(windows[:count], 1.0, 0.1) for count in range(WINDOWS + 1)}
    assert verdicts - {None} == {fits}
