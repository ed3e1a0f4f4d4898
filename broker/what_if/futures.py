"""What a job may still report: one of the futures that its forecasts allow, chosen by chance."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.curve import sign_of
from tiercel.broker.scheduling.forecast.work import (
    Forecast,
    PastCurve,
    forecast_from_history,
    forecast_from_samples,
    past_curves,
)
from tiercel.broker.scheduling.interface import JobView, PastRun
from tiercel.broker.simulation.curves import Trajectory
from tiercel.broker.what_if.progress import AS_BEFORE, Pace, at_its_pace, best_reports, by_report, in_view_of
from tiercel.core.jobs import Observation, TierState

# Reports of a future at most; with more, each stands for several epochs.
_MAX_REPORTS = 20
# A job of which nothing is known takes so many CPU seconds to each tier, more or less, if no other program tells.
_GUESS_CPU_SECONDS = 30.0
_GUESS_SPREAD = 1.0
# So far below the first possibility, and beyond the last one, as a part of it, a future may be.
_EXACT = 0.03


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of the rest of a job.

    Attributes:
        forecasts: CPU seconds from its beginning to each tier that is left, by the tier's number.
        known: Whether earlier runs of its program tell that; else it is a guess.
        report_cpu_seconds: What it takes from one report to the next.
        end: CPU seconds from its beginning to the end of its last epoch.
        spent: CPU seconds that it has used.
        best: The best that it reported, or None.
        next_report: CPU seconds from its beginning to its next report, which no tier comes before.
    """

    forecasts: dict[int, Forecast]
    known: bool
    report_cpu_seconds: float
    end: float
    spent: float
    best: float | None
    next_report: float


def rest_of(view: JobView, past: Sequence[PastRun], others: Sequence[float], beside: Pace = AS_BEFORE) -> Rest:
    """What is known of the rest of a job.

    Args:
        view: The job.
        past: Earlier runs of its program.
        others: CPU seconds that other programs' runs took.
        beside: The pace of the runs beside it.
    """
    seen = [each for each in view.observations if math.isfinite(each.value) and math.isfinite(each.cpu_seconds)]
    spent = view.cpu_seconds if math.isfinite(view.cpu_seconds) else 0.0
    sign = sign_of(view.direction)
    curves = at_its_pace(past_curves(past, view.direction), best_reports(view), beside, 0.0 if seen else spent)
    guess = [spent + each for each in (others or [_GUESS_CPU_SECONDS])]
    left = [tier for tier in view.tiers if tier.state in {TierState.PENDING, TierState.UNREACHABLE}]
    best = max((sign * each.value for each in seen), default=None)
    progress = next(((best, each.cpu_seconds) for each in seen if sign * each.value == best), None)
    forecasts = {
        tier.number: forecast_from_history([by_report(each) for each in in_view_of(curves, target, progress)], target)
        or forecast_from_samples(guess, _GUESS_SPREAD)
        for tier in left
        for target in (sign * tier.target,)
    }
    longest = max((each.totals[-1] for each in forecasts.values() if each.totals), default=_GUESS_CPU_SECONDS)
    steps = [after.cpu_seconds - before.cpu_seconds for before, after in itertools.pairwise(seen)]
    steps = steps or [after - before for each in curves for before, after in itertools.pairwise(each.spent)]
    report = max(statistics.median(steps) if steps else longest / _MAX_REPORTS, 1e-3)
    return Rest(
        forecasts,
        bool(curves),
        report,
        _end(view, seen, curves, report),
        max(spent, 0.0),
        None if best is None else sign * best,
        max(seen[-1].cpu_seconds if seen else 0.0, 0.0) + report,
    )


def _end(view: JobView, seen: Sequence[Observation], curves: Sequence[PastCurve], report: float) -> float:
    """CPU seconds from a job's beginning to its last epoch: at its own pace, else when earlier runs ended."""
    begins = [before for before, after in itertools.pairwise(seen) if before.epoch != after.epoch]
    if len(begins) > 1:  # whole epochs, from the end of one to the end of another
        first, last = begins[0], begins[-1]
        pace = (last.cpu_seconds - first.cpu_seconds) / (last.epoch - first.epoch)
        return last.cpu_seconds + max(view.max_epochs - last.epoch, 0) * pace
    if curves:
        return statistics.median(curve.spent[-1] for curve in curves)
    epochs = seen[-1].epoch if seen else 0
    spent = view.cpu_seconds if math.isfinite(view.cpu_seconds) else 0.0
    return spent + max(view.max_epochs - epochs, 1) * report


def drawn_work(forecast: Forecast, spent: float, chance: float) -> float | None:
    """CPU seconds from the beginning to a tier in the future that ``chance`` stands for; None where it never comes.

    Args:
        forecast: Of the work. A forecast is no list of exact values: between two possibilities all are alike.
        spent: CPU seconds without having reached it: what these outlived is not drawn.
        chance: In [0, 1); of two chances the larger one is no better future.
    """
    totals, sums = _levels(forecast)
    outlived = _between(totals, sums, spent)
    left = sums[-1] - outlived
    if left <= 1e-6:  # it has outlived all of them: as likely to last as long again
        if forecast.never >= 1 - 1e-6:
            return None
        return spent + max(spent, 1e-3) * (0.2 + 1.8 * chance)
    at = outlived + chance * (left + forecast.never)
    return None if at >= sums[-1] else max(_between(sums, totals, at), spent)


def _levels(forecast: Forecast) -> tuple[Sequence[float], Sequence[float]]:
    """CPU seconds, and how likely it is to be there by then: at a possibility, half of its own weight is behind."""
    if not forecast.totals:
        return (0.0,), (0.0,)
    ends = tuple(itertools.accumulate(forecast.weights))
    middles = (end - weight / 2 for end, weight in zip(ends, forecast.weights, strict=True))
    first, last = (1 - _EXACT) * forecast.totals[0], (1 + _EXACT) * forecast.totals[-1]
    return (first, *forecast.totals, last), (0.0, *middles, ends[-1])


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """The height at ``x`` of the line through points; level before the first and after the last. ``xs`` ascend."""
    index = bisect_left(xs, x)
    if index == 0 or index == len(xs):
        return ys[min(index, len(xs) - 1)]
    below, above = xs[index - 1], xs[index]
    return ys[index - 1] + (x - below) / (above - below) * (ys[index] - ys[index - 1])


def future(view: JobView, known: Rest, chance: float, startup: float) -> Trajectory:
    """What a job will report.

    Args:
        view: The job.
        known: What is known of its rest.
        chance: See :func:`drawn_work`.
        startup: CPU seconds before its training begins, which its curve is counted from.
    """
    sign = sign_of(view.direction)
    anchors: list[tuple[float, float]] = []
    at = known.spent
    for tier in view.tiers:
        forecast = known.forecasts.get(tier.number)
        if forecast is None:
            continue
        work = drawn_work(forecast, known.spent, chance)
        if work is None:
            break
        at = max(work, known.next_report, at)
        anchors.append((at, sign * tier.target))
    hopeless = len(anchors) < len(known.forecasts)
    first = anchors[0][1] if anchors else sign * view.tiers[-1].target - 1.0
    begin = sign * known.best if known.best is not None else first - max(abs(first), 0.1)
    end = at
    if hopeless or view.continues or not anchors:
        end = max(known.end, at, known.next_report)
    return _reports(known, ((known.spent, min(begin, first)), *anchors), end, startup, sign)


def _reports(
    known: Rest, anchors: Sequence[tuple[float, float]], end: float, startup: float, sign: float
) -> Trajectory:
    """Reports at about the rhythm of the job's, those that reach a tier, and one at the end."""
    begin = min(known.next_report, end)
    count = min(max(math.ceil((end - begin) / known.report_cpu_seconds), 1), _MAX_REPORTS)
    spots = {begin + (end - begin) * number / count for number in range(count)}
    spots = {max(each, known.spent) for each in (*spots, *(work for work, _ in anchors[1:]), end)}
    values = [sign * _value(anchors, spot) for spot in sorted(spots)]
    work = (max(spot - startup, 1e-9) for spot in sorted(spots))
    return Trajectory(tuple(itertools.accumulate(work, lambda a, b: max(b, a + 1e-9))), tuple(values))


def _value(anchors: Sequence[tuple[float, float]], spot: float) -> float:
    """The quality at a spot: straight between anchors, and no tier before its own."""
    index = bisect_left([work for work, _ in anchors], spot)
    if index < len(anchors) and anchors[index][0] <= spot:
        return max(value for work, value in anchors if work <= spot)
    if index == 0:
        return anchors[0][1]
    before_work, before = anchors[index - 1]
    if index == len(anchors):
        return before
    work, value = anchors[index]
    return before + 0.999 * (spot - before_work) / (work - before_work) * (value - before)
