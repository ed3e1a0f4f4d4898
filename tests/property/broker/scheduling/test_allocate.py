from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.scheduling.allocate import Claim, divide


@st.composite
def claims(draw: st.DrawFn) -> dict[str, Claim]:
    count = draw(st.integers(1, 8))
    floor = draw(st.floats(1e-6, 1 / count))
    weights = st.one_of(st.just(0.0), st.floats(1e-9, 1.0))
    return {str(index): Claim(draw(weights), floor, draw(st.floats(floor, 1.0))) for index in range(count)}


@given(claims=claims())
def test_the_capacity_is_used_up_as_far_as_the_ceilings_of_those_with_weight_allow(claims: dict[str, Claim]) -> None:
    shares = divide(claims, 1.0)
    weighty = any(claim.weight > 0 for claim in claims.values())
    usable = sum(claim.ceiling if claim.weight > 0 or not weighty else claim.floor for claim in claims.values())
    assert sum(shares.values()) == pytest.approx(min(1.0, usable), abs=1e-9)


@given(claims=claims())
def test_each_stays_within_its_bounds_and_in_proportion_between_them(claims: dict[str, Claim]) -> None:
    shares = divide(claims, 1.0)
    assert all(claim.floor <= shares[name] <= claim.ceiling for name, claim in claims.items())
    free = [
        shares[name] / claim.weight
        for name, claim in claims.items()
        if claim.weight > 0 and claim.floor < shares[name] < claim.ceiling
    ]
    assert all(scale == pytest.approx(free[0]) for scale in free)
