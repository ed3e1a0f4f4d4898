from __future__ import annotations

import pytest

from testing.scheduling import job
from tiercel.broker.scheduling.tiers import next_tier, reached_tiers
from tiercel.core.jobs import Tier, TierState, TierStatus


@pytest.mark.parametrize(
    ("states", "reached", "next_number"),
    [
        ([TierState.PENDING, TierState.PENDING], 0, 1),
        ([TierState.UNREACHABLE, TierState.PENDING], 0, 1),
        ([TierState.REACHED, TierState.PENDING], 1, 2),
        ([TierState.FAILED, TierState.UNREACHABLE], 1, 2),
        ([TierState.DELIVERED, TierState.REACHED], 2, None),
    ],
)
def test_a_tier_counts_from_its_first_report_on(states: list[TierState], reached: int, next_number: int | None) -> None:
    ladder = tuple(TierStatus(number, Tier(number / 10), state) for number, state in enumerate(states, start=1))
    view = job("j", ladder=ladder)
    tier = next_tier(view)
    assert reached_tiers(view) == reached
    assert (tier.number if tier else None) == next_number
