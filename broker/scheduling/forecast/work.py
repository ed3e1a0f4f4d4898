"""How much work a job still needs to reach a target: a forecast with its uncertainty.

A forecast is a handful of weighted possibilities for the CPU seconds from a run's start to the target, and the chance
that it never gets there. It comes from, the best first,

* earlier runs of the same program, scaled to how this run has begun: a live trial found that they predict the work to
  a tier to 1-21 %, far better than any fit to the beginning of a curve;
* fits of the run's own reports: exponential, hyperbolic (as SLAQ and Optimus do) and inverse square root curves over a
  grid of rates, level and drop by weighted least squares (variable projection), each with the weight that its error
  leaves it;
* a prior: what other jobs needed, or a broad guess.

What is learnt by working on without getting there is that the smaller possibilities were wrong: they are dropped. So
one forecast stays right while a job works on, and need not be made anew at each report.
"""

from __future__ import annotations

import enum
import functools
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.curve import sign_of
from tiercel.broker.scheduling.forecast.fitting import Shape, ShapedFit, evenly, shaped_fits
from tiercel.broker.scheduling.interface import PastRun
from tiercel.core.jobs import Direction, Observation

MIN_POINTS = 5
"""Reports that a fit needs."""

_POINTS_FITTED = 24
_POSSIBILITIES = 12
# A possibility is never held for more exact than this fraction of itself.
_GRAIN = 0.05
# A fit that puts the target farther away than so many times the work so far says "never".
_FAR = 30.0
# Reports this far back, as a fraction of the work so far, count 1/e.
_MEMORY = 0.5
# However many reports there are: the exponent of the ratio of errors by which a fit loses weight against the best one.
_MOST_EVIDENCE = 8.0
# Fits to the beginning of a curve are off by such factors even where they agree with each other.
_WIDENED = ((0.6, 0.25), (1.0, 0.45), (1.8, 0.3))
# A run differs from an earlier one by so many standard deviations, with these weights.
_SPREAD = ((-1.2, 0.3), (0.0, 0.4), (1.2, 0.3))
# CPU seconds; what lies outside of these is no work that anybody could measure or wait for.
_LEAST, _MOST = 1e-6, 1e12
_RATES = tuple(0.3 * 1.7**power for power in range(11))


class Source(enum.Enum):
    """What a forecast rests on."""

    HISTORY = "earlier runs of the same program"
    CURVE = "its own curve"
    PRIOR = "what other jobs needed"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Possibilities for the work to a target.

    Attributes:
        totals: CPU seconds from the run's start, ascending, > 0.
        weights: How likely each is; with ``never`` they add up to 1.
        never: How likely it is that the target is never reached.
        source: What it rests on.
    """

    totals: tuple[float, ...]
    weights: tuple[float, ...]
    never: float
    source: Source


@dataclass(frozen=True, slots=True)
class Remaining:
    """A forecast as it looks after some work without reaching the target.

    Attributes:
        rate: The largest chance of reaching the target per CPU second that working on for some time can have, given
            that one stops there or then: the Gittins index of the remaining work. One over the remaining work when
            that is certain.
        expected: Mean of the CPU seconds to go, if it gets there at all.
        low: One chance in ten that it takes less, CPU seconds to go.
        high: One chance in ten that it takes more, CPU seconds to go.
        never: How likely it is that it never gets there.
    """

    rate: float
    expected: float
    low: float
    high: float
    never: float


@dataclass(frozen=True, slots=True)
class PastCurve:
    """An earlier run, ready for look-up.

    Attributes:
        spent: CPU seconds since its start, ascending.
        quality: The best metric by then, turned so that larger is better; ascending.
    """

    spent: tuple[float, ...]
    quality: tuple[float, ...]


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
    return PastCurve(tuple(spent), tuple(quality)) if len(spent) >= 2 and spent[-1] > 0 else None


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


def forecast_from_history(
    curves: Sequence[PastCurve], target: float, spent: float, quality: float | None
) -> Forecast | None:
    """What earlier runs of the same program say.

    Args:
        curves: The earlier runs.
        target: The target as a quality (larger is better).
        spent: CPU seconds of this run when it reported ``quality``.
        quality: Its best report so far, or None before the first.

    Returns:
        None when they say nothing of the target.
    """
    found: list[float] = []
    missed: list[Forecast] = []
    for curve in curves:
        total = work_to(curve, target)
        if total is not None:
            found.append(_scaled(curve, total, spent, quality))
        elif (beyond := _beyond_its_end(curve, target)) is not None:
            missed.append(beyond)
    runs = len(found) + len(missed)
    if not runs:
        return None
    possible = [
        (total, weight) for beyond in missed for total, weight in zip(beyond.totals, beyond.weights, strict=True)
    ]
    if found:
        spread = _relative_spread(found)
        for total in found:
            to_go = max(total - spent, _GRAIN * total)
            possible += [(total + to_go * step * spread, weight) for step, weight in _SPREAD]
        slowest = max(found)
        possible += [(slowest * factor, 0.02 * len(found)) for factor in (1.5, 3.0)]
    # One run more that may turn out either way: nothing is certain.
    never = sum(beyond.never for beyond in missed) / (runs + 0.25)
    return _forecast(possible, never, Source.HISTORY)


def forecast_from_curve(
    observations: Sequence[Observation], direction: Direction, target: float, spent: float
) -> Forecast | None:
    """What fits of a run's own reports say.

    Args:
        observations: The reports, oldest first.
        direction: Whether a larger or a smaller metric is better.
        target: The target, a metric.
        spent: CPU seconds used by now.

    Returns:
        None with fewer than :data:`MIN_POINTS` reports, or when no work or no progress lies between them.
    """
    chosen = _thinned(observations)
    sign = sign_of(direction)
    work = [seen.cpu_seconds for seen in chosen]
    return _forecast_from_points(work, [sign * seen.value for seen in chosen], sign * target, spent)


def _forecast_from_points(
    work: Sequence[float], quality: Sequence[float], target: float, spent: float
) -> Forecast | None:
    if len(work) < MIN_POINTS or work[-1] <= work[0]:
        return None
    start, span = work[0], work[-1] - work[0]
    lowest, extent = min(quality), max(quality) - min(quality)
    if not 0 < extent < math.inf:
        return None
    x = [(done - start) / span for done in work]
    y = [(value - lowest) / extent for value in quality]
    recency = [math.exp((part - 1.0) / _MEMORY) for part in x]
    possible: list[tuple[float, float]] = []
    never = 0.0
    for units, weight in _fits(x, y, recency, (target - lowest) / extent):
        total = start + units * span
        if total > _FAR * max(spent, start + span):
            never += weight
        else:
            to_go = max(total - spent, _GRAIN * spent)
            possible += [(spent + factor * to_go, weight * part) for factor, part in _WIDENED]
    return _forecast(possible, never, Source.CURVE) if possible or never else None


def forecast_from_samples(samples: Sequence[float], spread: float, scale: float = 1.0) -> Forecast:
    """What other jobs needed, each widened to a range.

    Args:
        samples: CPU seconds, each > 0; at least one.
        spread: Standard deviation of the logarithm around each sample.
        scale: What each is multiplied by.
    """
    steps = ((-1.3, 0.25), (0.0, 0.5), (1.3, 0.25))
    possible = [(sample * scale * math.exp(step * spread), weight) for sample in samples for step, weight in steps]
    return _forecast(possible, 0.0, Source.PRIOR)


def mixed(first: Forecast, second: Forecast, part: float) -> Forecast:
    """``part`` of the first forecast and the rest of the second; it rests on what the larger part rests on."""
    possible = [(total, part * weight) for total, weight in zip(first.totals, first.weights, strict=True)]
    possible += [(total, (1 - part) * weight) for total, weight in zip(second.totals, second.weights, strict=True)]
    never = part * first.never + (1 - part) * second.never
    return _forecast(possible, never, first.source if part >= 0.5 else second.source)


def _forecast(possible: Iterable[tuple[float, float]], never: float, source: Source) -> Forecast:
    """A forecast of at most so many possibilities; those beside each other are put together."""
    ordered = sorted(entry for entry in possible if entry[1] > 0 and _LEAST <= entry[0] <= _MOST)
    mass = sum(weight for _, weight in ordered)
    if mass <= 0:
        return Forecast((), (), 1.0, source)
    scale = (1 - never) / mass
    if len(ordered) <= _POSSIBILITIES:
        totals = tuple(total for total, _ in ordered)
        return Forecast(totals, tuple(weight * scale for _, weight in ordered), never, source)
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
    return Forecast(tuple(total for total, _ in groups), tuple(w * scale for _, w in groups), never, source)


def _scaled(curve: PastCurve, total: float, spent: float, quality: float | None) -> float:
    """What an earlier run's work to the target means for a run that reached ``quality`` after ``spent`` CPU seconds."""
    before = work_to(curve, quality) if quality is not None else None
    if before is None or not 0 < before < total or spent <= 0:
        return total
    # The nearer both are to the target, the more the pace so far tells of the rest.
    pace = min(max(spent / before, 0.2), 5.0)
    return spent + (total - before) * math.pow(pace, before / total)


@functools.lru_cache(maxsize=4096)
def _beyond_its_end(curve: PastCurve, target: float) -> Forecast | None:
    """What would have become of an earlier run that ended before it met the target; None when it ended too early."""
    chosen = evenly(len(curve.spent), _POINTS_FITTED)
    return _forecast_from_points(curve.spent[chosen], curve.quality[chosen], target, curve.spent[-1])


def _relative_spread(totals: Sequence[float]) -> float:
    """How much the totals of different runs differ; a single one is taken for 15 % uncertain."""
    mean = sum(totals) / len(totals)
    variance = sum((total - mean) ** 2 for total in totals) / len(totals) / mean**2
    return min(max((math.sqrt(variance) * len(totals) + 0.15) / (len(totals) + 1), 0.03), 0.6)


def _fits(x: Sequence[float], y: Sequence[float], recency: Sequence[float], target: float) -> list[tuple[float, float]]:
    """How far each fit puts the target (in units of x, infinity for never) and its weight; they add up to 1."""
    total = sum(recency)
    fits = [(fit, fit.squared_error / total) for fit in shaped_fits(x, y, tuple(Shape), _RATES, recency)]
    if not fits:
        return []
    # Reports are rarely better than one part in a thousand, and a perfect fit to a few is no proof.
    least = min(error for _, error in fits) + 1e-6
    evidence = min(total * total / sum(w * w for w in recency) / 2, _MOST_EVIDENCE)
    weights = [(least / (error + 1e-6)) ** evidence for _, error in fits]
    mass = sum(weights)
    return [
        (_crossing(fit, target, math.sqrt(error)), weight / mass)
        for (fit, error), weight in zip(fits, weights, strict=True)
    ]


def _crossing(fit: ShapedFit, target: float, noise: float) -> float:
    """Where a fit meets the target, in units of x; infinity when it never does."""
    if fit.factor >= 0:
        return math.inf
    # The first of several noisy reports meets it earlier than the curve does, by about half a standard deviation.
    value = (target - noise / 2 - fit.level) / fit.factor
    if value <= 1e-6:
        return math.inf
    return 0.0 if value >= 1 else fit.shape.inverse(value) / fit.rate


def _thinned(observations: Sequence[Observation]) -> list[Observation]:
    """At most so many finite reports in the order of work, evenly chosen, the latest always among them."""
    chosen = observations[evenly(len(observations), _POINTS_FITTED)]
    kept: list[Observation] = []
    for seen in chosen:
        if math.isfinite(seen.value) and math.isfinite(seen.cpu_seconds):
            if kept and seen.cpu_seconds < kept[-1].cpu_seconds:
                kept.clear()  # the counter began at zero again
            kept.append(seen)
    return kept
