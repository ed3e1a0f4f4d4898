"""Fair division of cores by weights when nobody can use more than a bound: weighted max-min fairness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What one run asks of the node.

    Attributes:
        weight: Its part under contention; any positive number, only ratios matter.
        bound_cores: The most it can or may use.
    """

    weight: float
    bound_cores: float


def fill(claims: Mapping[str, Claim], cores: float) -> dict[str, float]:
    """Divide ``cores`` among ``claims`` in proportion to their weights, but give nobody more than its bound.

    What a bounded claim leaves flows to the others, again by weight (progressive filling; Bertsekas and Gallager,
    *Data Networks*, 6.5.2). Nothing is left over while somebody could use it.

    Args:
        claims: By name.
        cores: What there is to divide, in cores.

    Returns:
        Cores by name; their sum is the smaller one of ``cores`` and the sum of the bounds.
    """
    allocation: dict[str, float] = {}
    # The claim that is satisfied at the lowest water level comes first, so that one pass is enough.
    by_level = sorted(claims, key=lambda name: claims[name].bound_cores / claims[name].weight)
    left = cores
    weight_left = sum(claim.weight for claim in claims.values())
    for name in by_level:
        claim = claims[name]
        allocation[name] = min(claim.bound_cores, max(0.0, left) * claim.weight / weight_left)
        left -= allocation[name]
        weight_left = max(weight_left - claim.weight, claim.weight * 1e-12)
    return allocation
