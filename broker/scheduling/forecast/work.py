"""How much work a job still needs to reach a target: a forecast with its uncertainty.

A forecast is a handful of weighted possibilities for the CPU seconds from a run's start to the target, and the chance
that it never gets there. It comes from earlier runs of the same program (a live trial found that they tell the work to
a tier to 1-21 %), or of what other programs needed.

What is learnt by working on without getting there is that the smaller possibilities were wrong: they are dropped. So
one forecast stays right while a job works on, and need not be made anew at each report.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.curve import sign_of
from tiercel.broker.scheduling.interface import JobView, PastRun
from tiercel.core.jobs import Direction

_POSSIBILITIES = 12
# A possibility is never held for more exact than this fraction of itself.
_GRAIN = 0.05
# An earlier run that ended before it met a target, yet still rose, is held to have met it after so many times its work.
_BEYOND = (1.3, 2.0, 4.0)
# A run has levelled off if the later half of its work brought it less than this part of the gap nearer.
_LEVELS_OFF = 0.1
# A run differs from an earlier one by so many standard deviations, with these weights.
_SPREAD = ((-1.2, 0.3), (0.0, 0.4), (1.2, 0.3))
_MOST_SPREAD = 0.6
# CPU seconds; what lies outside of these is no work that anybody could measure or wait for.
_LEAST, _MOST = 1e-6, 1e12


@dataclass(frozen=True, slots=True)
class Forecast:
    """Possibilities for the work to a target."""

    totals: tuple[float, ...]  # CPU seconds from the run's start, ascending, > 0
    weights: tuple[float, ...]  # how likely each is; with ``never`` they add up to 1
    never: float  # how likely it is that the target is never reached


@dataclass(frozen=True, slots=True)
class Remaining:
    """A forecast as it looks after some work without reaching the target."""

    # The largest chance of reaching the target per CPU second that working on for some time can have, given that one
    # stops there or then: the Gittins index of the remaining work. One over the remaining work when that is certain.
    rate: float
    expected: float  # mean of the CPU seconds to go, if it gets there at all
    low: float  # one chance in ten that it takes less, CPU seconds to go
    high: float  # one chance in ten that it takes more, CPU seconds to go
    never: float  # how likely it is that it never gets there


@dataclass(frozen=True, slots=True)
class PastCurve:
    """An earlier run, ready for look-up."""

    spent: tuple[float, ...]  # CPU seconds since its start, ascending
    quality: tuple[float, ...]  # the best metric by then, turned so that larger is better; ascending
    differs: float = 0.0  # see :class:`.PastRun`


def remaining_after(forecast: Forecast, spent: float) -> Remaining:
    """What a forecast says after ``spent`` CPU seconds in which the target was not reached."""
    spent = min(max(spent, 0.0), _MOST)
    left = [
        (max(total - spent, _GRAIN * total, _LEAST), weight)
        for total, weight in zip(forecast.totals, forecast.weights, strict=True)
        if spent < (1 + _GRAIN) * total
    ]
    mass = sum(weight for _, weight in left)
    if mass <= 1e-6:
        # It has outlived every possibility: as with anything that has lasted long, it is as likely to last as long.
        left = [(factor * max(spent, 1e-3), 0.25) for factor in (0.3, 0.8, 1.8, 4.0)]
        mass = 1.0
    possible = mass + forecast.never
    rate = reached = effort = 0.0
    low = high = 0.0
    for remaining, weight in left:
        reached += weight
        effort += weight * remaining
        rate = max(rate, reached / (effort + (possible - reached) * remaining))
        low = low or (remaining if reached >= 0.1 * mass else 0.0)
        high = high or (remaining if reached >= 0.9 * mass - 1e-12 else 0.0)
    high = high or left[-1][0]
    return Remaining(rate=rate, expected=effort / mass, low=low, high=high, never=forecast.never / possible)


def past_curve(run: PastRun, direction: Direction) -> PastCurve | None:
    """An earlier run for look-up; None when it says nothing."""
    sign = sign_of(direction)
    spent: list[float] = []
    quality: list[float] = []
    for point in run.curve:
        if math.isfinite(point.value) and 0 <= point.cpu_seconds < math.inf:
            spent.append(max(point.cpu_seconds, spent[-1] if spent else 0.0))
            quality.append(max(sign * point.value, quality[-1] if quality else -math.inf))
    return PastCurve(tuple(spent), tuple(quality), run.differs) if len(spent) >= 2 and spent[-1] > 0 else None


def past_curves(runs: Iterable[PastRun], direction: Direction) -> tuple[PastCurve, ...]:
    """Earlier runs for look-up, those that say something."""
    return tuple(curve for run in runs if (curve := past_curve(run, direction)) is not None)


def work_to(curve: PastCurve, quality: float) -> float | None:
    """CPU seconds that an earlier run took to a quality, between reports by a straight line; None if it never did."""
    index = bisect_left(curve.quality, quality)
    if index == len(curve.quality):
        return None
    if index == 0:
        return curve.spent[0]
    before, after = curve.quality[index - 1], curve.quality[index]
    part = (quality - before) / (after - before)
    return curve.spent[index - 1] + part * (curve.spent[index] - curve.spent[index - 1])


def work_of_all_epochs(job: JobView) -> float:
    """CPU seconds from a job's start to its last epoch at its own pace; infinite while that is unknown."""
    if len(job.observations) < 2 or job.max_epochs <= 0:
        return math.inf
    first, last = job.observations[0], job.observations[-1]
    epochs = last.epoch - first.epoch
    if epochs <= 0 or last.cpu_seconds <= first.cpu_seconds:
        return math.inf
    pace = (last.cpu_seconds - first.cpu_seconds) / epochs
    return last.cpu_seconds + max(job.max_epochs - last.epoch, 0) * pace


def forecast_from_history(curves: Sequence[PastCurve], target: float) -> Forecast | None:
    """What earlier runs of the same program, or of one like it, say.

    Args:
        curves: The earlier runs; those of a program that differs say it with less certainty.
        target: The target as a quality (larger is better).

    Returns:
        None without any.
    """
    found: list[float] = []
    possible: list[tuple[float, float]] = []
    never = 0
    for curve in curves:
        total = work_to(curve, target)
        if total is not None:
            found.append(total)
        elif has_levelled_off(curve, target):
            never += 1
        else:
            possible += [(factor * curve.spent[-1], 1 / len(_BEYOND)) for factor in _BEYOND]
    if not curves:
        return None
    differs = max(curve.differs for curve in curves)
    if found:
        spread = min(math.hypot(_relative_spread(found), differs), _MOST_SPREAD)
        for total in found:
            possible += [(total * (1 + step * spread), weight) for step, weight in _SPREAD]
        slowest = max(found)
        possible += [(slowest * factor, 0.02 * len(found)) for factor in (1.5, 3.0)]
    # One run more that may turn out either way: nothing is certain. Another program may have had its own reasons.
    return _forecast(possible, never / (len(curves) * (1 + differs) + 0.25))


def forecast_from_samples(samples: Sequence[float], spread: float) -> Forecast:
    """What other jobs needed, each widened to a range.

    Args:
        samples: CPU seconds, each > 0; at least one.
        spread: Standard deviation of the logarithm around each sample.
    """
    steps = ((-1.3, 0.25), (0.0, 0.5), (1.3, 0.25))
    possible = [(sample * math.exp(step * spread), weight) for sample in samples for step, weight in steps]
    return _forecast(possible, 0.0)


def _forecast(possible: Iterable[tuple[float, float]], never: float) -> Forecast:
    """A forecast of at most so many possibilities; those beside each other are put together."""
    ordered = sorted(entry for entry in possible if entry[1] > 0 and _LEAST <= entry[0] <= _MOST)
    mass = sum(weight for _, weight in ordered)
    if mass <= 0:
        return Forecast((), (), 1.0)
    scale = (1 - never) / mass
    if len(ordered) <= _POSSIBILITIES:
        totals = tuple(total for total, _ in ordered)
        return Forecast(totals, tuple(weight * scale for _, weight in ordered), never)
    groups: list[tuple[float, float]] = []
    work = weight_sum = 0.0
    for total, weight in ordered:
        work += total * weight
        weight_sum += weight
        if weight_sum >= mass / _POSSIBILITIES:
            groups.append((work / weight_sum, weight_sum))
            work = weight_sum = 0.0
    if weight_sum > 0:
        groups.append((work / weight_sum, weight_sum))
    return Forecast(tuple(total for total, _ in groups), tuple(w * scale for _, w in groups), never)


def has_levelled_off(curve: PastCurve, target: float) -> bool:
    """Whether the later half of a run's work brought it hardly any nearer to a quality that it has not met."""
    best = curve.quality[-1]
    half_way = curve.quality[max(bisect_left(curve.spent, curve.spent[-1] / 2) - 1, 0)]
    return best - half_way <= _LEVELS_OFF * (target - best)


def _relative_spread(totals: Sequence[float]) -> float:
    """How much the totals of different runs differ; a single one is taken for 15 % uncertain."""
    mean = sum(totals) / len(totals)
    variance = sum((total - mean) ** 2 for total in totals) / len(totals) / mean**2
    return min(max((math.sqrt(variance) * len(totals) + 0.15) / (len(totals) + 1), 0.03), _MOST_SPREAD)
