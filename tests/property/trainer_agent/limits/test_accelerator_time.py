"""What makes a division of accelerator time fair, and what the limits that follow from it give each run."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.trainer_agent.limits.accelerator_time import (
    WANTS_ALL,
    AcceleratorClaim,
    active_limits,
    demand_of,
    divide,
    turns_of,
)

NAMES = "abcdef"


@st.composite
def claims(draw: st.DrawFn, *, hungry: bool = False) -> dict[str, AcceleratorClaim]:
    """Two to six runs whose fractions add up to 1 at most."""
    weights = draw(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6))
    room = draw(st.floats(0.3, 1.0))
    demands = st.just(WANTS_ALL) if hungry else st.floats(0.05, 1.0)
    return {
        name: AcceleratorClaim(room * weight / sum(weights), draw(demands))
        for name, weight in zip(NAMES, weights, strict=False)
    }


def accelerator_time(active: dict[str, float]) -> dict[str, float]:
    """What each gets of an accelerator that gives equal turns, if each has work there for so much of the time."""
    return {name: active[name] * turns_of(active[other] for other in active if other != name) for name in active}


@given(claims())
def test_all_of_the_accelerator_is_given_out_and_no_more(wanted: dict[str, AcceleratorClaim]) -> None:
    given_out = divide(wanted)
    assert given_out.keys() == wanted.keys()
    assert sum(given_out.values()) == pytest.approx(1.0)


@given(claims())
def test_nobody_gets_less_than_its_fraction_while_it_wants_it(wanted: dict[str, AcceleratorClaim]) -> None:
    for name, part in divide(wanted).items():
        assert part >= min(wanted[name].fraction, wanted[name].demand) - 1e-9


@given(claims())
def test_nobody_gets_more_than_it_wants_while_somebody_wants_more(wanted: dict[str, AcceleratorClaim]) -> None:
    given_out = divide(wanted)
    if any(part < wanted[name].demand - 1e-9 for name, part in given_out.items()):
        assert all(part <= wanted[name].demand + 1e-9 for name, part in given_out.items())


@given(claims(), st.sampled_from(NAMES), st.floats(0.0, 0.05))
def test_a_little_more_or_less_demand_moves_nobody_far(
    wanted: dict[str, AcceleratorClaim], who: str, change: float
) -> None:
    if who not in wanted:
        return
    nudged = wanted | {who: AcceleratorClaim(wanted[who].fraction, min(wanted[who].demand + change, 1.0))}
    before, after = divide(wanted), divide(nudged)
    for name in wanted:
        assert abs(after[name] - before[name]) <= change + 1e-9


@given(st.lists(st.floats(0.0, 1.0), max_size=6))
def test_turns_are_the_mean_over_who_else_is_there(others: list[float]) -> None:
    mean = 0.0
    for there in itertools.product([False, True], repeat=len(others)):
        chance = 1.0
        for is_there, active in zip(there, others, strict=True):
            chance *= active if is_there else 1.0 - active
        mean += chance / (1 + sum(there))
    assert turns_of(others) == pytest.approx(mean, abs=1e-9)


@given(claims(hungry=True))
def test_under_its_limit_each_gets_what_it_was_given(wanted: dict[str, AcceleratorClaim]) -> None:
    limits = active_limits(wanted)
    assert all(0.0 < limit <= 1.0 for limit in limits.values())
    assert accelerator_time(limits) == pytest.approx(divide(wanted), abs=0.01)


@given(claims())
def test_while_somebody_wants_more_somebody_is_not_limited(wanted: dict[str, AcceleratorClaim]) -> None:
    if sum(claim.demand for claim in wanted.values()) > 1.0 + 1e-3:
        assert max(active_limits(wanted).values()) == 1.0


@given(claims())
def test_everybody_may_do_what_was_expected_of_it(wanted: dict[str, AcceleratorClaim]) -> None:
    limits, given_out = active_limits(wanted), divide(wanted)
    for name, part in given_out.items():
        assert limits[name] >= min(part, wanted[name].demand) - 1e-6


@given(st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.floats(0.1, 1.0))
def test_who_comes_close_to_its_limit_wants_more_and_others_keep_some_room(
    limit: float, part: float, turns: float
) -> None:
    active = part * limit
    demand = demand_of(active, limit, turns)
    assert active * turns < demand <= WANTS_ALL or active * turns == demand == WANTS_ALL
    if part > 0.95:
        assert demand == WANTS_ALL


def test_a_run_alone_is_not_limited() -> None:
    assert active_limits({"a": AcceleratorClaim(0.2, 0.1)}) == {"a": 1.0}


def test_nobody_has_no_limits() -> None:
    assert active_limits({}) == {}


def test_two_that_want_all_take_turns_as_they_are_if_they_have_halves() -> None:
    assert active_limits({"a": AcceleratorClaim(0.5), "b": AcceleratorClaim(0.5)}) == pytest.approx(
        {"a": 1.0, "b": 1.0}, abs=0.05
    )


def test_a_small_fraction_is_on_the_accelerator_for_twice_as_long_beside_one_that_always_is() -> None:
    assert active_limits({"a": AcceleratorClaim(0.7), "b": AcceleratorClaim(0.3)}) == pytest.approx(
        {"a": 1.0, "b": 0.6}, abs=0.001
    )
