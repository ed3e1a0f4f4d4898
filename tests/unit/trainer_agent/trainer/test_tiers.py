from __future__ import annotations

import pytest

from tiercel.trainer_agent.trainer.tiers import Observation, TierTracker


def make_tracker(*targets: float, smaller_is_better: bool = False) -> TierTracker:
    return TierTracker(smaller_is_better=smaller_is_better, targets=targets)


def test_a_report_below_every_tier_keeps_nothing() -> None:
    tiers = make_tracker(0.9, 0.97)
    assert tiers.observe(0.89) == Observation(reached=(), is_best=False)
    assert tiers.kept_value is None
    assert tiers.expected == ()


def test_a_report_may_reach_several_tiers_at_once() -> None:
    tiers = make_tracker(0.9, 0.95, 0.97)
    assert tiers.observe(0.96) == Observation(reached=(0.9, 0.95), is_best=True)
    assert tiers.expected == (0.9, 0.95)


def test_a_tier_is_reached_once_but_better_weights_replace_the_kept_ones() -> None:
    tiers = make_tracker(0.9)
    tiers.observe(0.91)
    assert tiers.observe(0.93) == Observation(reached=(), is_best=True)
    assert tiers.observe(0.92) == Observation(reached=(), is_best=False)
    assert tiers.kept_value == 0.93


def test_once_a_tier_is_handed_over_only_the_next_one_is_worth_a_copy() -> None:
    tiers = make_tracker(0.9, 0.97)
    tiers.observe(0.91)
    tiers.mark_handed_over(0.9)
    assert not tiers.expected
    assert tiers.observe(0.95) == Observation(reached=(), is_best=False)
    assert tiers.kept_value == 0.91
    assert tiers.observe(0.98) == Observation(reached=(0.97,), is_best=True)
    assert tiers.expected == (0.97,)


def test_a_tier_that_the_kept_weights_fall_short_of_is_reached_anew_by_better_ones() -> None:
    tiers = make_tracker(0.9, 0.97)
    tiers.observe(0.91)
    tiers.mark_fallen_short(0.9)
    assert not tiers.expected
    assert tiers.observe(0.905) == Observation(reached=(), is_best=False)
    assert not tiers.expected
    assert tiers.observe(0.98) == Observation(reached=(0.9, 0.97), is_best=True)
    assert tiers.expected == (0.9, 0.97)


def test_with_a_loss_smaller_is_better() -> None:
    tiers = make_tracker(150.0, 115.0, smaller_is_better=True)
    assert tiers.observe(151.0).reached == ()
    assert tiers.observe(150.0).reached == (150.0,)
    assert tiers.observe(149.0) == Observation(reached=(), is_best=True)
    assert tiers.falls_short(150.1, 150.0, relative_tolerance=1e-4)
    assert not tiers.falls_short(150.01, 150.0, relative_tolerance=1e-4)


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_nan_reaches_nothing_and_falls_short_of_everything(smaller_is_better: bool) -> None:
    tiers = make_tracker(0.5, smaller_is_better=smaller_is_better)
    assert tiers.observe(float("nan")) == Observation(reached=(), is_best=False)
    assert tiers.falls_short(float("nan"), 0.5, relative_tolerance=1e-4)


def test_a_new_welcome_replaces_the_tiers_and_a_restored_run_goes_on() -> None:
    tiers = make_tracker(0.9, 0.97)
    tiers.restore(kept_value=0.92, handed_over=())
    assert list(tiers.expected) == [0.9]
    tiers.update_targets([0.97])
    assert not tiers.expected
    assert tiers.has_reached(0.9)
    assert not tiers.has_reached(0.97)
