"""Which trials of a sweep are stopped, and what people write of ranges."""

from __future__ import annotations

import pytest

from tiercel.broker.client.sweeps.ranges import Choices, Integers, Numbers, arguments_of, read_range
from tiercel.broker.client.sweeps.stopping import Halving, Learned, trials_to_stop
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction
from tiercel.core.tiers import Tier, TierState, TierStatus

HALVING = Halving(first_epoch=2, factor=3)


def learned(
    *values: float,
    over: bool = False,
    tier: TierState = TierState.PENDING,
    direction: Direction = Direction.MAX,
) -> Learned:
    found = Learned(tiers=(TierStatus(1, Tier(0.9), tier),), over=over)
    for epoch, value in enumerate(values, start=1):
        found.add(epoch, value, direction, HALVING)
    return found


def test_one_of_so_many_goes_on_from_a_rung_and_the_rest_is_stopped() -> None:
    values = {0: (0.1, 0.5), 1: (0.1, 0.7, 0.7), 2: (0.1, 0.6), 3: (0.9,)}
    trials = {number: learned(*each) for number, each in values.items()}
    assert trials_to_stop(trials, Direction.MAX, HALVING).keys() == {0, 2}
    values = {number: (0.9, *each[1:]) for number, each in values.items()}
    trials = {number: learned(*each, direction=Direction.MIN) for number, each in values.items()}
    assert trials_to_stop(trials, Direction.MIN, HALVING).keys() == {1, 2}


def test_nobody_is_stopped_before_there_are_enough_to_compare_or_where_all_are_equal() -> None:
    assert not trials_to_stop({0: learned(0.1, 0.5), 1: learned(0.1, 0.7)}, Direction.MAX, HALVING)
    assert not trials_to_stop(dict.fromkeys(range(6), learned(0.5, 0.5)), Direction.MAX, HALVING)


def test_those_that_are_over_count_and_are_not_stopped_again() -> None:
    ended = {number: learned(0.8, 0.8, over=True) for number in range(3)}
    assert trials_to_stop({**ended, 3: learned(0.1, 0.2)}, Direction.MAX, HALVING).keys() == {3}


def test_a_later_rung_compares_only_those_that_came_so_far() -> None:
    far = {number: learned(*[0.1 * number] * 6) for number in range(3)}
    stopped = trials_to_stop({**far, 3: learned(0.9, 0.9)}, Direction.MAX, HALVING)
    assert stopped.keys() == {0, 1}
    assert "epoch 6" in stopped[0]


def test_a_tier_that_is_out_of_reach_counts_only_where_another_trial_has_it() -> None:
    behind = learned(0.1, tier=TierState.UNREACHABLE)
    assert not trials_to_stop({0: behind, 1: learned(0.2)}, Direction.MAX, HALVING)
    assert "tier 1" in trials_to_stop({0: behind, 1: learned(0.9, tier=TierState.REACHED)}, Direction.MAX, HALVING)[0]


def test_what_is_kept_of_a_trial_does_not_grow_with_its_epochs() -> None:
    found = Learned()
    for epoch in range(1, 10_000):
        found.add(epoch, 1.0 - 1.0 / epoch, Direction.MAX, HALVING)
    assert list(found.at_rungs) == [2, 6, 18, 54, 162, 486, 1458, 4374]
    assert found.at_rungs[6] == 1.0 - 1.0 / 6


def test_epochs_that_were_left_out_or_are_told_again_count_as_they_would_at_once() -> None:
    found = Learned()
    for epoch, value in ((1, 0.1), (5, 0.5), (3, 0.9), (7, 0.2), (7, 0.95)):  # went on from a checkpoint after 5
        found.add(epoch, value, Direction.MAX, HALVING)
    assert (found.at_rungs, found.epoch, found.best) == ({2: 0.1, 6: 0.9}, 7, 0.95)
    late = Learned()
    late.add(4, 0.5, Direction.MAX, HALVING)
    assert late.at_rungs == {}, "by epoch 2 it had told of nothing"


def test_ranges_are_read() -> None:
    assert read_range("lr=loguniform:1e-4:1e-1") == ("lr", Numbers(1e-4, 1e-1, log=True))
    assert read_range("width=int:16:256") == ("width", Integers(16, 256))
    assert read_range("act=cat:relu,gelu") == ("act", Choices(("relu", "gelu")))


@pytest.mark.parametrize(
    "text",
    ["lr", "=int:1:2", "lr=", "lr=int:1", "lr=int:2:1", "lr=int:1.5:2", "lr=uniform:0:inf", "lr=uniform:nan:1",
     "lr=loguniform:0:1", "act=cat:", "act=cat:a,a", "act=cat:a,,b", "lr=normal:0:1", "-lr=int:1:2", "a b=int:1:2"],
)  # fmt: skip
def test_what_is_no_range_is_said(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="param: "):
        read_range(text)


def test_a_value_that_looks_like_an_option_is_joined_to_its_name() -> None:
    assert arguments_of({"lr": 0.5, "shift": -1e-5}) == ("--lr", "0.5", "--shift=-1e-05")
