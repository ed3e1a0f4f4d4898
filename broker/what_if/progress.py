"""What earlier runs tell of a run that is under way, in view of its pace and of how far it has come.

A CPU second is worth less beside neighbours and on another machine: what lies after the first report is taken at the
pace of this run's own reports, and what lies before as long as it was here (:func:`at_its_pace`). One that has not
reported, or hardly, is taken at the pace of those beside it, each against the earlier runs of its own program
(:mod:`.paces`).

One that was slower than they were to the quality it has is slower to its target, to the degree that this was so among
them: the logarithm of the work to the target, regressed on that of the work to this quality (a control variate;
Lavenberg and Welch, 1981). Few runs tell little of that degree; it is drawn to the part of the way that lies behind.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.forecast.curve import sign_of
from tiercel.broker.scheduling.forecast.work import PastCurve, work_to
from tiercel.broker.scheduling.history import MAX_POINTS
from tiercel.broker.scheduling.interface import JobView

# Variance, in the logarithm, among earlier runs at which they count as much as the part of the way. Chosen on the draws
# 310 to 315 of benchmarks/principle/work.py, which benchmarks/what_if.py does not use.
_TELLING_VARIANCE = 0.01
# So many of the first steps from one best report to the next are compared: later ones skip reports that were no better,
# some more than others.
_STEPS = 8
# "The pace of earlier runs" counts as much as so many steps that were seen.
_GUESS_STEPS = 2.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How many times the CPU seconds of earlier runs a run needs, as logarithms."""

    start: float = 0.0  # to its first report
    step: float = 0.0  # from one report to the next
    trust: float = 0.0  # how much its reports tell of the latter, in [0, 1)


AS_BEFORE = Pace()
FULL_TRUST = _STEPS / (_STEPS + _GUESS_STEPS) - 1e-9
"""Of a pace with so much no later report tells more."""


def best_reports(view: JobView) -> list[float]:
    """CPU seconds to each report that was the best so far; none where the first ones are forgotten."""
    found: list[float] = []
    best, sign = -math.inf, sign_of(view.direction)
    for each in view.observations if view.observations and view.observations[0].epoch <= 1 else ():
        if sign * each.value > best and each.cpu_seconds >= (found[-1] if found else 0.0):
            best = sign * each.value
            found.append(each.cpu_seconds)
    return found


def pace_of(curves: Sequence[PastCurve], own: Sequence[float]) -> Pace | None:
    """The pace of a run; None where nothing tells it.

    Args:
        curves: The earlier runs.
        own: See :func:`at_its_pace`.
    """
    firsts = [curve.spent[0] for curve in curves]
    if not firsts or not own or min(*firsts, own[0]) <= 0:
        return None
    found = [_step_pace(curve, own) for curve in curves]
    return Pace(
        math.log(own[0] / statistics.median(firsts)),
        statistics.median(pace for _, pace in found),
        statistics.fmean(_trust(count) for count, _ in found),
    )


def at_its_pace(
    curves: Sequence[PastCurve], own: Sequence[float], beside: Pace = AS_BEFORE, spent: float = 0.0
) -> tuple[PastCurve, ...]:
    """Earlier runs as they would have been with the start and the pace of this one.

    Args:
        curves: The earlier runs.
        own: CPU seconds from the run's start to each of its reports that was its best so far, the first report among
            them.
        beside: What is held of the pace before the run's own reports tell it.
        spent: CPU seconds that the run has used: without a report by then, its start takes longer than that.
    """
    return tuple(_at_pace(curve, own, beside, spent) for curve in curves)


def _at_pace(curve: PastCurve, own: Sequence[float], beside: Pace, spent: float) -> PastCurve:
    count, seen = _step_pace(curve, own)
    trust = _trust(count)
    pace = math.exp(trust * seen + (1 - trust) * beside.step)
    first = own[0] if own else max(curve.spent[0] * math.exp(beside.start), spent)
    return replace(curve, spent=tuple(first + (each - curve.spent[0]) * pace for each in curve.spent))


def _step_pace(curve: PastCurve, own: Sequence[float]) -> tuple[int, float]:
    """How many steps can be compared, and the logarithm of how many times longer they are."""
    mine, theirs = _steps(own), _steps(curve.spent)
    count = min(len(mine), len(theirs))
    # Of a curve that was thinned, a step stands for several reports.
    if not count or len(curve.spent) >= MAX_POINTS:
        return 0, 0.0
    return count, math.log(statistics.median(mine[:count]) / statistics.median(theirs[:count]))


def _trust(count: int) -> float:
    return count / (count + _GUESS_STEPS)


def _steps(spent: Sequence[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(spent) if after > before][:_STEPS]


def by_report(curve: PastCurve) -> PastCurve:
    """The curve as it was known: a quality is there with the report that shows it, and not between two of them.

    A tier is reached by a report, in the next run as in earlier ones.
    """
    spent, quality = (tuple(each for each in values for _ in range(2)) for values in (curve.spent, curve.quality))
    return replace(curve, spent=spent[1:], quality=quality[:-1])


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
