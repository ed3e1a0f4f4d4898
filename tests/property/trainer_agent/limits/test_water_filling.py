"""What makes a division of cores weighted max-min fair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.trainer_agent.limits.water_filling import Claim, fill

CLAIMS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2),
    st.builds(Claim, st.floats(1e-3, 1.0), st.floats(0.01, 64.0)),
    max_size=12,
)
CORES = st.floats(0.1, 128.0)


@given(CLAIMS, CORES)
def test_nobody_gets_more_than_its_bound_and_nothing_is_wasted(claims: dict[str, Claim], cores: float) -> None:
    allocation = fill(claims, cores)
    assert allocation.keys() == claims.keys()
    for name, claim in claims.items():
        assert 0 <= allocation[name] <= claim.bound_cores
    could_use = sum(claim.bound_cores for claim in claims.values())
    assert sum(allocation.values()) == pytest.approx(min(cores, could_use))


@given(CLAIMS, CORES)
def test_the_unsatisfied_share_one_water_level(claims: dict[str, Claim], cores: float) -> None:
    allocation = fill(claims, cores)
    levels = {name: allocation[name] / claims[name].weight for name in claims}
    hungry = [name for name in claims if allocation[name] < claims[name].bound_cores * (1 - 1e-9)]
    for name in hungry:
        assert levels[name] == pytest.approx(max(levels.values()))


@given(CLAIMS, CORES)
def test_only_ratios_of_weights_matter(claims: dict[str, Claim], cores: float) -> None:
    scaled = {name: Claim(claim.weight * 7.0, claim.bound_cores) for name, claim in claims.items()}
    assert fill(scaled, cores) == pytest.approx(fill(claims, cores))


def test_a_claim_with_most_of_the_weight_still_gets_no_more_than_it_can_use() -> None:
    allocation = fill({"big": Claim(0.8, 1.0), "one": Claim(0.1, 1.0), "two": Claim(0.1, 1.0)}, 2.0)
    assert allocation == pytest.approx({"big": 1.0, "one": 0.5, "two": 0.5})
