from __future__ import annotations

import pytest

from tiercel.trainer_agent.limits.mapping import quota_microseconds, v1_shares, v2_weight


@pytest.mark.parametrize(
    ("weight", "shares", "weight_v2"),
    [(1.0, 262_144, 10_000), (0.75, 196_608, 7_500), (0.25, 65_536, 2_500), (1e-9, 2, 1)],
)
def test_weights_keep_their_ratio_within_what_the_kernel_takes(weight: float, shares: int, weight_v2: int) -> None:
    assert v1_shares(weight) == shares
    assert v2_weight(weight) == weight_v2


@pytest.mark.parametrize(("cap", "quota"), [(None, None), (0.5, 50_000), (2.0, 200_000), (1e-6, 1_000)])
def test_caps_become_quotas_the_kernel_takes(cap: float | None, quota: int | None) -> None:
    assert quota_microseconds(cap) == quota
