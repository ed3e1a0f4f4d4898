"""Dividing one thing among many in proportion to weights, each within bounds of its own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody may get.

    Attributes:
        weight: Its claim relative to the others', >= 0 and finite.
        floor: It gets at least this.
        ceiling: It gets at most this; not below the floor.
    """

    weight: float
    floor: float
    ceiling: float = 1.0


def divide(claims: Mapping[str, Claim], capacity: float) -> dict[str, float]:
    """Divide ``capacity`` in proportion to the weights within each one's bounds.

    The result is ``clamp(scale * weight, floor, ceiling)`` with the one scale that uses up the capacity. Less than the
    capacity is given only where all that have a weight are at their ceilings. Weights that are all zero count as equal.

    Args:
        claims: Who claims what. The floors must fit into the capacity.
        capacity: What there is.

    Returns:
        What each one gets.
    """
    if not any(claim.weight > 0 for claim in claims.values()):
        claims = {name: Claim(1.0, claim.floor, claim.ceiling) for name, claim in claims.items()}
    # The total grows with the scale, linear between the scales at which somebody leaves its floor or hits its ceiling.
    scales = sorted({bound / claim.weight for claim in claims.values() if claim.weight > 0 for bound in _bounds(claim)})
    index = bisect_left(scales, capacity, key=lambda scale: _total(claims, scale))
    if index == len(scales):
        return _shares(claims, scales[-1]) if scales else {}
    low = scales[index - 1] if index else 0.0
    before, after = _total(claims, low), _total(claims, scales[index])
    part = (capacity - before) / (after - before) if after > before else 0.0
    return _shares(claims, low + max(part, 0.0) * (scales[index] - low))


def _bounds(claim: Claim) -> tuple[float, float]:
    return (claim.floor, claim.ceiling)


def _shares(claims: Mapping[str, Claim], scale: float) -> dict[str, float]:
    return {name: min(max(scale * claim.weight, claim.floor), claim.ceiling) for name, claim in claims.items()}


def _total(claims: Mapping[str, Claim], scale: float) -> float:
    return sum(_shares(claims, scale).values())
