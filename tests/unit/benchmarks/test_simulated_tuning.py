from __future__ import annotations

import pytest

from benchmarks.simulated_tuning import RANGES, TRIES, draw_settings
from tiercel.broker.scheduling.registry import create_policy


@pytest.mark.parametrize("policy", RANGES)
def test_a_policy_takes_every_setting_that_is_drawn_for_it(policy: str) -> None:
    settings = draw_settings(policy, TRIES)

    assert [create_policy(policy, dict(each)).name for each in settings] == [policy] * (TRIES + 1)
    assert len({repr(each) for each in settings}) > TRIES / 2, "the draws differ"


def test_the_defaults_are_tried_first_and_draws_repeat() -> None:
    assert draw_settings("utility", 3)[0] == {}
    assert draw_settings("utility", 3) == draw_settings("utility", 3)
