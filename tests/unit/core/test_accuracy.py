"""Which metrics are accuracies."""

from __future__ import annotations

import math

import pytest

from tiercel.core.accuracy import accuracy_of
from tiercel.core.jobs import Direction


@pytest.mark.parametrize("value", [None, 0.0, -0.1, 1.01, math.nan, math.inf])
def test_what_is_no_fraction_is_no_accuracy(value: float | None) -> None:
    assert accuracy_of(value, Direction.MAX) is None


def test_a_fraction_that_is_to_grow_is_one() -> None:
    assert accuracy_of(0.5, Direction.MAX) == 0.5
    assert accuracy_of(1.0, Direction.MAX) == 1.0
    assert accuracy_of(0.5, Direction.MIN) is None
