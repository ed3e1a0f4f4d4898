"""What earlier runs tell of a run that is under way, in view of its pace and of how far it has come.

A CPU second is worth less beside neighbours and on another machine: what lies after the first report is taken at the
pace of this run's own reports, and what lies before as long as it was here (:func:`at_its_pace`).

One that was slower than they were to the quality it has is slower to its target, to the degree that this was so among
them: the logarithm of the work to the target, regressed on that of the work to this quality (a control variate;
Lavenberg and Welch, 1981). Few runs tell little of that degree; it is drawn to the part of the way that lies behind.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from tiercel.broker.scheduling.forecast.work import PastCurve, work_to
from tiercel.broker.scheduling.history import MAX_POINTS

# Variance, in the logarithm, among earlier runs at which they count as much as the part of the way. Chosen on the draws
# 310 to 315 of benchmarks/principle/work.py, which benchmarks/what_if.py does not use.
_TELLING_VARIANCE = 0.01
# So many of the first steps from one best report to the next are compared: later ones skip reports that were no better,
# some more than others.
_STEPS = 8
# "The pace of earlier runs" counts as much as so many steps that were seen.
_GUESS_STEPS = 2.0


def at_its_pace(curves: Sequence[PastCurve], own: Sequence[float]) -> tuple[PastCurve, ...]:
    """Earlier runs as they would have been with the start and the pace of this one.

    Args:
        curves: The earlier runs.
        own: CPU seconds from the run's start to each of its reports that was its best so far, the first report among
            them.
    """
    return tuple(curve if not own else _at_pace(curve, own) for curve in curves)


def _at_pace(curve: PastCurve, own: Sequence[float]) -> PastCurve:
    mine, theirs = _steps(own), _steps(curve.spent)
    count = min(len(mine), len(theirs))
    pace = 1.0
    # Of a curve that was thinned, a step stands for several reports.
    if count and len(curve.spent) < MAX_POINTS:
        ratio = statistics.median(mine[:count]) / statistics.median(theirs[:count])
        pace = math.pow(ratio, count / (count + _GUESS_STEPS))
    return replace(curve, spent=tuple(own[0] + (spent - curve.spent[0]) * pace for spent in curve.spent))


def _steps(spent: Sequence[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(spent) if after > before][:_STEPS]


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
