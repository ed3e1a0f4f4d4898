"""Weighted max-min fairness: the one way in which cores, devices and limits are divided."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def fill(weights: Sequence[float], ceilings: Sequence[float], amount: float) -> list[float]:
    """Divide an amount by weight, but give nobody more than it can use; what that leaves flows to the others.

    Weighted max-min fairness by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2). Work-conserving:
    either the amount is used up or everybody has its ceiling.

    Args:
        weights: Each one's part under contention, > 0; only ratios matter.
        ceilings: The most that each can use, >= 0.
        amount: What there is.

    Returns:
        What each gets.
    """
    if math.fsum(ceilings) <= amount:
        return list(ceilings)
    given = [0.0] * len(weights)
    order = sorted(range(len(weights)), key=lambda index: ceilings[index] / weights[index])
    # Added up from the end, not subtracted from the sum: what is left of large weights would hide small ones.
    weights_left = list(accumulate(weights[index] for index in reversed(order)))[::-1]
    left = amount
    for index, weight_left in zip(order, weights_left, strict=True):
        given[index] = min(ceilings[index], left * (weights[index] / weight_left))
        left = max(left - given[index], 0.0)
    return given
