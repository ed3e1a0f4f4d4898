"""From a share to the numbers that the kernel's files take."""

from __future__ import annotations

from typing import Final

PERIOD_MICROSECONDS: Final = 100_000
"""Length of a quota's period. Shorter ones switch more and gain nothing."""

_V1_SHARES: Final = (2, 262_144)
_V2_WEIGHT: Final = (1, 10_000)
_SMALLEST_QUOTA_MICROSECONDS: Final = 1_000  # the kernel refuses less


def v1_shares(weight: float) -> int:
    """``cpu.shares`` for a fraction in (0, 1]; what Docker's ``CpuShares`` takes on any kernel."""
    return _clip(round(weight * _V1_SHARES[1]), _V1_SHARES)


def v2_weight(weight: float) -> int:
    """``cpu.weight`` for a fraction in (0, 1]."""
    return _clip(round(weight * _V2_WEIGHT[1]), _V2_WEIGHT)


def v1_group_shares(weight: float) -> int:
    """``cpu.shares`` of a group that weighs ``weight`` ordinary processes."""
    return _clip(round(weight * 1024), _V1_SHARES)


def v2_group_weight(weight: float) -> int:
    """``cpu.weight`` of a group that weighs ``weight`` ordinary processes."""
    return _clip(round(weight * 100), _V2_WEIGHT)


def quota_microseconds(cap_cores: float | None) -> int | None:
    """CPU microseconds in a period of :data:`PERIOD_MICROSECONDS` for a cap in cores, or None for no cap."""
    if cap_cores is None:
        return None
    return max(_SMALLEST_QUOTA_MICROSECONDS, round(cap_cores * PERIOD_MICROSECONDS))


def _clip(value: int, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(bounds[1], value))
