"""Weighted max-min fairness: the one way in which cores, devices and limits are divided."""

from __future__ import annotations

import math
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
    count = len(weights)
    if math.fsum(ceilings) <= amount:
        return list(ceilings)
    given = [0.0] * count
    order = sorted(range(count), key=lambda index: ceilings[index] / weights[index])
    left, weight_left = amount, math.fsum(weights)
    for position, index in enumerate(order):
        weight = weights[index]
        # The last one takes what is left: subtracted weights need not add up to nothing.
        part = left if position == count - 1 else left * min(1.0, weight / weight_left)
        given[index] = min(ceilings[index], part)
        left = max(left - given[index], 0.0)
        weight_left = max(weight_left - weight, weight * 1e-12)
    return given
