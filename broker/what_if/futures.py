"""What a job may still report: one of the futures that its forecasts allow, chosen by chance."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.curve import sign_of
from tiercel.broker.scheduling.forecast.work import Forecast, forecast_from_history, forecast_from_samples, past_curves
from tiercel.broker.scheduling.interface import JobView, PastRun
from tiercel.broker.simulation.curves import Trajectory
from tiercel.broker.what_if.progress import at_its_pace, in_view_of
from tiercel.core.jobs import TierState

# Reports of a future at most; with more, each stands for several epochs.
_MAX_REPORTS = 20
# A job of which nothing is known takes so many CPU seconds to each tier, more or less, if no other program tells.
_GUESS_CPU_SECONDS = 30.0
_GUESS_SPREAD = 1.0
# The first possibility begins at so much of itself.
_FIRST = 0.97


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of the rest of a job.

    Attributes:
        forecasts: CPU seconds from its beginning to each tier that is left, by the tier's number.
        known: Whether earlier runs of its program tell that; else it is a guess.
        epoch_cpu_seconds: What an epoch takes.
        spent: CPU seconds that it has used.
        best: The best that it reported, or None.
    """

    forecasts: dict[int, Forecast]
    known: bool
    epoch_cpu_seconds: float
    spent: float
    best: float | None


def rest_of(view: JobView, past: Sequence[PastRun], others: Sequence[float]) -> Rest:
    """What is known of the rest of a job.

    Args:
        view: The job.
        past: Earlier runs of its program.
        others: CPU seconds that other programs' runs took.
    """
    seen = [each for each in view.observations if math.isfinite(each.value) and math.isfinite(each.cpu_seconds)]
    spent = view.cpu_seconds if math.isfinite(view.cpu_seconds) else 0.0
    sign = sign_of(view.direction)
    curves = at_its_pace(past_curves(past, view.direction), _best_reports(view, sign))
    guess = [spent + each for each in (others or [_GUESS_CPU_SECONDS])]
    left = [tier for tier in view.tiers if tier.state in {TierState.PENDING, TierState.UNREACHABLE}]
    best = max((sign * each.value for each in seen), default=None)
    progress = next(((best, each.cpu_seconds) for each in seen if sign * each.value == best), None)
    forecasts = {
        tier.number: forecast_from_history(in_view_of(curves, target, progress), target)
        or forecast_from_samples(guess, _GUESS_SPREAD)
        for tier in left
        for target in (sign * tier.target,)
    }
    longest = max((each.totals[-1] for each in forecasts.values() if each.totals), default=_GUESS_CPU_SECONDS)
    steps = [b.cpu_seconds - a.cpu_seconds for a, b in itertools.pairwise(seen) if b.epoch > a.epoch]
    epoch = sorted(steps)[len(steps) // 2] if steps else longest / 20
    return Rest(forecasts, bool(curves), max(epoch, 1e-3), max(spent, 0.0), None if best is None else sign * best)


def _best_reports(view: JobView, sign: float) -> list[float]:
    """CPU seconds to each report that was the best so far; none where the first ones are forgotten."""
    found: list[float] = []
    best = -math.inf
    for each in view.observations if view.observations and view.observations[0].epoch <= 1 else ():
        if sign * each.value > best and each.cpu_seconds >= (found[-1] if found else 0.0):
            best = sign * each.value
            found.append(each.cpu_seconds)
    return found


def drawn_work(forecast: Forecast, spent: float, chance: float) -> float | None:
    """CPU seconds from the beginning to a tier in the future that ``chance`` stands for; None where it never comes.

    Args:
        forecast: Of the work. A forecast is no list of exact values: between two possibilities all are alike.
        spent: CPU seconds without having reached it: what these outlived is not drawn.
        chance: In [0, 1); of two chances the larger one is no better future.
    """
    totals = (_FIRST * forecast.totals[0], *forecast.totals) if forecast.totals else (0.0,)
    sums = (0.0, *itertools.accumulate(forecast.weights))
    outlived = _between(totals, sums, spent)
    left = sums[-1] - outlived
    if left <= 1e-6:  # it has outlived all of them: as likely to last as long again
        if forecast.never >= 1 - 1e-6:
            return None
        return spent + max(spent, 1e-3) * (0.2 + 1.8 * chance)
    at = outlived + chance * (left + forecast.never)
    return None if at >= sums[-1] else max(_between(sums, totals, at), spent)


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
        at = max(work, at)
        anchors.append((at, sign * tier.target))
    hopeless = len(anchors) < len(known.forecasts)
    first = anchors[0][1] if anchors else sign * view.tiers[-1].target - 1.0
    begin = sign * known.best if known.best is not None else first - max(abs(first), 0.1)
    end = at
    if hopeless or view.continues or not anchors:
        epochs = view.observations[-1].epoch if view.observations else 0
        left = max(view.max_epochs - epochs, 1)
        end = max(known.spent + left * known.epoch_cpu_seconds, at)
    return _reports(known, ((known.spent, min(begin, first)), *anchors), end, startup, sign)


def _reports(
    known: Rest, anchors: Sequence[tuple[float, float]], end: float, startup: float, sign: float
) -> Trajectory:
    """Reports at the rhythm of epochs, the last one at the end or right after it."""
    count = max(math.ceil((end - known.spent) / known.epoch_cpu_seconds), 1)
    step = known.epoch_cpu_seconds * max(count / _MAX_REPORTS, 1.0)
    spots = [known.spent + step * number for number in range(1, min(count, _MAX_REPORTS) + 1)]
    if step > known.epoch_cpu_seconds:  # those that reach a tier come when they do
        spots = sorted({*spots, *(work + known.epoch_cpu_seconds / 2 for work, _ in anchors[1:])})
    values = [sign * _value(anchors, spot) for spot in spots]
    work = list(itertools.accumulate((max(spot - startup, 1e-9) for spot in spots), lambda a, b: max(b, a + 1e-9)))
    return Trajectory(tuple(work), tuple(values))


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
