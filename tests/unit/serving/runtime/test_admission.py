from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.serving.runtime.admission import Admission, MemoryAccount, Size, decide, estimate

MIB = 1024**2
BESIDE, MOVE, REFUSED = Admission.BESIDE, Admission.AFTER_MOVING, Admission.REFUSED


@pytest.mark.parametrize(
    ("budget", "others", "old", "new", "may_move", "expected", "limit"),
    [
        (0, 900, 900, 900, False, BESIDE, 0),  # no budget
        (1000, 0, 0, 1000, False, BESIDE, 1000),  # the first
        (1000, 200, 300, 500, False, BESIDE, 500),  # both fit
        (1000, 200, 300, 501, True, MOVE, 800),
        (1000, 200, 300, 501, False, REFUSED, 0),
        (1000, 200, 300, 801, True, REFUSED, 0),  # not even without the old one
        (1000, 600, 0, 500, True, REFUSED, 0),  # nothing to move
    ],
)
def test_how_a_version_comes_in(
    *, budget: int, others: int, old: int, new: int, may_move: bool, expected: Admission, limit: int
) -> None:
    decision = decide(budget, others, old, new, may_move=may_move)
    assert (decision.admission, decision.limit) == (expected, limit)
    assert bool(decision.reason) == (expected is REFUSED)


def test_one_version_may_be_limited_too() -> None:
    assert decide(0, 0, 0, 300, may_move=False, model_limit=400).limit == 400
    assert decide(1000, 0, 0, 300, may_move=False, model_limit=400).limit == 400
    assert decide(350, 0, 0, 300, may_move=False, model_limit=400).limit == 350
    refused = decide(0, 0, 0, 500 * MIB, may_move=False, model_limit=400 * MIB)
    assert refused.reason == "it needs about 500 MiB of accelerator memory, and one version may take 400 MiB"


def test_a_refusal_says_what_is_held_and_what_to_do() -> None:
    swap = decide(1000 * MIB, 0, 600 * MIB, 600 * MIB, may_move=False)
    assert swap.reason == (
        "it needs about 600 MiB beside 600 MiB of the version it replaces, and --accelerator-memory is 1000 MiB; "
        "allow --swap-over-cpu, raise --accelerator-memory, or have it run on the CPU"
    )
    full = decide(1000 * MIB, 600 * MIB, 0, 600 * MIB, may_move=True)
    assert "beside 600 MiB of others" in full.reason
    assert "unload other models" in full.reason
    assert "--swap-over-cpu" not in full.reason


@given(
    budget=st.integers(1, 1000),
    others=st.integers(0, 1000),
    old=st.integers(0, 1000),
    new=st.integers(0, 1000),
    may_move=st.booleans(),
    model_limit=st.integers(0, 1000),
)
def test_what_is_let_in_stays_within_the_budget_and_its_limit_lets_it_in(
    *, budget: int, others: int, old: int, new: int, may_move: bool, model_limit: int
) -> None:
    decision = decide(budget, others, old, new, may_move=may_move, model_limit=model_limit)
    if decision.admission is REFUSED:
        return
    stays = 0 if decision.admission is MOVE else old
    assert others + stays + decision.limit <= budget
    assert new <= decision.limit
    assert decision.admission is BESIDE or may_move


def test_a_version_is_estimated_by_the_one_before_it_else_by_its_weights() -> None:
    assert estimate(100 * MIB, 3.0) == 364 * MIB
    assert estimate(100 * MIB, 3.0, Size(100 * MIB)) == 364 * MIB  # not measured yet
    assert estimate(100 * MIB, 3.0, Size(100 * MIB, 150 * MIB)) == 150 * MIB
    assert estimate(200 * MIB, 3.0, Size(100 * MIB, 150 * MIB)) == 300 * MIB
    assert estimate(100 * MIB, 3.0, Size(0, 150 * MIB)) == 364 * MIB


def test_what_is_measured_counts_within_what_is_possible() -> None:
    account = MemoryAccount()
    one, two = account.take(300, 100), account.take(50, 20)
    assert account.held == 350
    account.settle(one, 250, limit=0)
    assert (account.held, one.known) == (300, Size(100, 250))
    assert two.known == Size(20, 0)
    account.settle(two, 5000, limit=60)  # another program took the rest
    account.settle(one, 0, limit=0)  # or gave something back meanwhile
    assert (one.size, two.size) == (100, 60)
    account.release(one)
    account.release(one)
    assert account.held == 60
