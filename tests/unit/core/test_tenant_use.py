"""What was used fades, and makes a tenant count for less than others."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.core.tenant_use import TenantUse, fair_factors, seconds_until

WEEK = 7 * 24 * 3600.0
HOUR = 3600.0


def factors(weights: dict[str, float], hours: dict[str, float], cores: float = 4.0) -> dict[str, float]:
    uses = {name: TenantUse(name, used * HOUR) for name, used in hours.items()}
    return fair_factors(weights, uses, cores, 0, prior_seconds=HOUR)


def test_half_of_it_is_left_after_a_half_life() -> None:
    used = TenantUse("alice", 800.0, 80.0, at=1000.0)
    assert used.faded(1000.0 + WEEK, WEEK) == TenantUse("alice", 400.0, 40.0, at=1000.0 + WEEK)
    assert used.faded(1000.0 + WEEK / 2, WEEK).faded(1000.0 + WEEK, WEEK).core_seconds == pytest.approx(400.0)
    assert used.faded(0.0, WEEK).core_seconds == 800.0, "of a clock that was set back"


def test_when_it_is_less_again() -> None:
    assert seconds_until(1.0, 2.0, WEEK) == 0.0
    assert seconds_until(8.0, 2.0, WEEK) == 2 * WEEK
    assert seconds_until(1.0, 0.0, WEEK) == math.inf


def test_nobody_to_compare_with_counts_as_it_is() -> None:
    assert factors({"alice": 3.0}, {"alice": 1000.0}) == {"alice": 1.0}
    assert factors({"alice": 1.0, "bob": 2.0}, {"alice": 0.0, "bob": 0.0}) == {"alice": 1.0, "bob": 1.0}
    assert factors({"alice": 1.0, "bob": 1.0}, {"alice": 0.0, "bob": 0.0}, cores=0.0) == {"alice": 1.0, "bob": 1.0}


def test_who_has_used_more_counts_for_less() -> None:
    found = factors({"alice": 1.0, "bob": 1.0}, {"alice": 1000.0, "bob": 0.0})
    assert found["alice"] == pytest.approx(0.5, rel=0.01)
    assert found["bob"] == pytest.approx(2.0, rel=0.01)
    little = factors({"alice": 1.0, "bob": 1.0}, {"alice": 0.01, "bob": 0.0})
    assert little["bob"] / little["alice"] == pytest.approx(1.0, abs=0.01), "after some seconds nobody has used much"


def test_of_cores_and_accelerators_the_one_counts_that_was_used_more() -> None:
    uses = {"alice": TenantUse("alice", 10.0, 900 * HOUR), "bob": TenantUse("bob", 10.0, 100 * HOUR)}
    found = fair_factors({"alice": 1.0, "bob": 1.0}, uses, 4.0, 1, prior_seconds=HOUR)
    assert found["alice"] < 0.6 < 1.5 < found["bob"]


@given(st.lists(st.tuples(st.floats(0.01, 100.0), st.floats(0.0, 1e9)), min_size=1, max_size=8), st.floats(0.0, 1e4))
def test_factors_are_bounded_and_in_the_order_of_what_was_used(
    tenants: list[tuple[float, float]], cores: float
) -> None:
    weights = {f"t{index}": weight for index, (weight, _) in enumerate(tenants)}
    hours = {f"t{index}": used for index, (_, used) in enumerate(tenants)}
    found = factors(weights, hours, cores)
    assert all(0.25 <= factor <= 4.0 for factor in found.values())
    by_use = sorted(found, key=lambda name: hours[name] / weights[name])
    assert [found[name] for name in by_use] == pytest.approx(sorted(found.values(), reverse=True))


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8), st.floats(0.0, 1e6))
def test_who_has_used_what_its_weight_says_counts_as_it_is(weights: list[float], hours: float) -> None:
    named = {f"t{index}": weight for index, weight in enumerate(weights)}
    found = factors(named, {name: weight * hours for name, weight in named.items()})
    assert list(found.values()) == pytest.approx([1.0] * len(named))
