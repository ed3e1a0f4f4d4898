from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.trainer_agent.trainer.tiers import TierTracker

VALUES = st.floats(0, 1, allow_nan=False) | st.just(float("nan"))
LADDERS = st.lists(st.floats(0, 1), min_size=1, max_size=4, unique=True).map(sorted)


@given(LADDERS, st.lists(st.tuples(VALUES, st.booleans(), st.booleans()), max_size=30), st.booleans())
def test_what_is_kept_serves_every_tier_that_is_expected(
    ladder: list[float], reports: list[tuple[float, bool, bool]], smaller_is_better: bool
) -> None:
    """Whatever is reported, and whenever models are handed over, the kept value reaches all that was reached."""
    sign = -1.0 if smaller_is_better else 1.0
    targets = [sign * target for target in ladder]
    tiers = TierTracker(smaller_is_better=smaller_is_better, targets=targets)
    reached_ever: set[float] = set()
    for plain, hand_over, only_if_reached in reports:
        value = sign * plain
        before = tiers.kept_value
        observation = tiers.observe(value, only_if_reached=only_if_reached)
        assert not reached_ever & set(observation.reached), "a tier is reached once"
        reached_ever |= set(observation.reached)
        assert tiers.kept_value == (value if observation.is_best else before)
        assert set(tiers.expected) == reached_ever - tiers.handed_over
        assert all(tiers.has_reached(target) for target in reached_ever)
        if only_if_reached:
            assert observation.is_best == bool(observation.reached)
        if observation.reached:
            assert observation.is_best, "whatever reaches a tier is worth keeping"
        if hand_over:
            for target in tiers.expected:
                tiers.mark_handed_over(target)


@given(st.floats(0.01, 100), st.floats(-1, 1), st.booleans())
def test_only_what_misses_the_target_falls_short(target: float, offset: float, smaller_is_better: bool) -> None:
    tiers = TierTracker(smaller_is_better=smaller_is_better, targets=[target])
    value = target * (1 + offset)
    better = value <= target if smaller_is_better else value >= target
    assert not (better and tiers.falls_short(value, target, relative_tolerance=1e-4))
    if not better and abs(offset) > 1e-3:
        assert tiers.falls_short(value, target, relative_tolerance=1e-4)
