"""What earlier runs tell of a run that is under way, in view of how far it has come.

One that was slower than they were to the quality it has is slower to its target, to the degree that this was so among
them: the logarithm of the work to the target, regressed on that of the work to this quality (a control variate;
Lavenberg and Welch, 1981). Few runs tell little of that degree; it is drawn to the part of the way that lies behind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tiercel.broker.scheduling.forecast.work import PastCurve, work_to

# Variance, in the logarithm, among earlier runs at which they count as much as the part of the way. Chosen on the draws
# 310 to 315 of benchmarks/principle/work.py, which benchmarks/what_if.py does not use.
_TELLING_VARIANCE = 0.01


def in_view_of(
    curves: Sequence[PastCurve], target: float, progress: tuple[float, float] | None
) -> tuple[PastCurve, ...]:
    """Earlier runs as they would have been, had they come as far as this one with as much work.

    Args:
        curves: The earlier runs.
        target: The target as a quality (larger is better).
        progress: The best quality that the run has shown, and the CPU seconds from its start to there; None before its
            first report.
    """
    if progress is None or progress[0] >= target or progress[1] <= 0:
        return tuple(curves)
    best, spent = progress
    ways = [(work_to(curve, best), work_to(curve, target)) for curve in curves]
    logs = [(math.log(here), math.log(there)) for here, there in ways if here and there]
    return tuple(
        curve if not here else _stretched(curve, math.pow(spent / here, _degree(logs, here / there if there else 0.5)))
        for curve, (here, there) in zip(curves, ways, strict=True)
    )


def _degree(logs: Sequence[tuple[float, float]], part: float) -> float:
    """The power of "so many times slower to here" that makes "so many times slower to the target", from 0 to 1."""
    if not logs:
        return part
    here = sum(x for x, _ in logs) / len(logs)
    there = sum(y for _, y in logs) / len(logs)
    variance = sum((x - here) ** 2 for x, _ in logs)
    covariance = sum((x - here) * (y - there) for x, y in logs)
    degree = (covariance + _TELLING_VARIANCE * part) / (variance + _TELLING_VARIANCE)
    return min(max(degree, 0.0), 1.0)


def _stretched(curve: PastCurve, factor: float) -> PastCurve:
    return replace(curve, spent=tuple(spent * factor for spent in curve.spent))
