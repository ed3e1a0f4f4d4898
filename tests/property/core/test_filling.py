"""What makes a division weighted max-min fair."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiercel.core.filling import fill

CLAIMS = st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(0.0, 64.0)), max_size=12)
AMOUNT = st.floats(0.1, 128.0)


@given(CLAIMS, AMOUNT)
def test_nobody_gets_more_than_it_can_use_and_nothing_is_wasted(
    claims: list[tuple[float, float]], amount: float
) -> None:
    weights, ceilings = [weight for weight, _ in claims], [ceiling for _, ceiling in claims]
    parts = fill(weights, ceilings, amount)
    assert math.fsum(parts) == pytest.approx(min(amount, math.fsum(ceilings)), abs=1e-9)
    assert all(0 <= part <= ceiling + 1e-12 for part, ceiling in zip(parts, ceilings, strict=True))


@given(CLAIMS, AMOUNT)
def test_whoever_is_short_has_as_much_for_its_weight_as_anybody_else(
    claims: list[tuple[float, float]], amount: float
) -> None:
    weights, ceilings = [weight for weight, _ in claims], [ceiling for _, ceiling in claims]
    parts = fill(weights, ceilings, amount)
    levels = [part / weight for part, weight in zip(parts, weights, strict=True)]
    short = [level for level, part, ceiling in zip(levels, parts, ceilings, strict=True) if part < ceiling - 1e-9]
    assert all(level >= max(levels) * (1 - 1e-6) - 1e-9 for level in short)


@example(claims=[(1.0, 0.0), (1.0, 0.0), (1.0000000000000002e-06, 12.0), (1.0000000000000002e-06, 12.0)], amount=22.0)
@given(CLAIMS, AMOUNT)
def test_only_ratios_of_weights_matter(claims: list[tuple[float, float]], amount: float) -> None:
    weights, ceilings = [weight for weight, _ in claims], [ceiling for _, ceiling in claims]
    scaled = fill([7.0 * weight for weight in weights], ceilings, amount)
    assert scaled == pytest.approx(fill(weights, ceilings, amount), abs=1e-9)
