"""What a job's reports say about its learning: how fast it improves, and where it levels off.

Everything is measured per CPU second, never per second on the wall, so that a job that was given little does not look
like a job that learns slowly. Of a job that keeps an accelerator busier than the CPU, per second of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tiercel.broker.scheduling.forecast.fitting import Shape, evenly, mean_of, shaped_fits, straight_fit
from tiercel.core.jobs import Direction, Observation

_POINTS_FITTED = 48
# A curve that might be a flat line may go on along it for so many times the CPU seconds used so far.
_LINE_GOES_ON = 10.0
_RATES = tuple(0.5 * 1.3**power for power in range(20))


@dataclass(frozen=True, slots=True)
class Curve:
    """A job's reports, ready for arithmetic."""

    # CPU seconds used since the first report, never decreasing; of a job that used more seconds of its accelerators
    # since then, those instead. Wall seconds while nothing was measured.
    spent: tuple[float, ...]
    quality: tuple[float, ...]  # the metric, turned so that larger is better, divided by ``scale``: within [-1, 1]
    scale: float  # what one unit of ``quality`` is in units of the metric
    target: float  # the next tier's target in units of ``quality``
    direction: Direction  # whether a larger or a smaller metric is better

    @property
    def gap(self) -> float:
        """From the best report so far to the target, in units of ``quality``; needs a report."""
        return self.target - max(self.quality)

    def metric(self, quality: float) -> float:
        """A quality in the metric's own unit and sign."""
        return quality * self.scale if self.direction is Direction.MAX else -quality * self.scale


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line through reports, in units of ``quality`` per CPU second."""

    slope: float  # its rise
    slope_error: float  # standard error of the slope
    noise: float  # standard deviation of the reports around it


@dataclass(frozen=True, slots=True)
class Plateau:
    """Where a curve levels off, in units of ``quality``."""

    # The most optimistic level that the reports allow; not below the best report. Infinite while the curve may just as
    # well be a line that rises.
    level: float
    noise: float  # standard deviation of the reports around the best fit


ReportsSeen = tuple[int, float, int]
"""Number of the reports kept, time and epoch of the newest: the same as long as a job has said nothing new."""


def reports_seen(observations: Sequence[Observation]) -> ReportsSeen | None:
    """Which reports there are; None without any."""
    if not observations:
        return None
    newest = observations[-1]
    return (len(observations), newest.at, newest.epoch)


def sign_of(direction: Direction) -> float:
    """What a metric is multiplied by so that larger is better."""
    return 1.0 if direction is Direction.MAX else -1.0


def curve_of(observations: Sequence[Observation], direction: Direction, target: float) -> Curve:
    """The finite reports as a curve towards ``target``."""
    values, counters, times = _finite(observations)
    sign = sign_of(direction)
    scale = max(abs(target), max(map(abs, values), default=0.0)) or 1.0
    spent = tuple(_since_first(counters))
    if spent and spent[-1] <= 0:
        spent = tuple(accumulate((at - times[0] for at in times), max))
    quality = tuple([sign * (value / scale) for value in values])
    return Curve(spent=spent, quality=quality, scale=scale, target=sign * (target / scale), direction=direction)


def _finite(observations: Sequence[Observation]) -> tuple[list[float], list[float], list[float]]:
    """Values, CPU seconds and times of the reports in which all three are finite."""
    values = [seen.value for seen in observations]
    counters = _dominant(observations)
    times = [seen.at for seen in observations]
    # A sum is finite only if all its parts are; it may overflow all the same, which the long way settles.
    if math.isfinite(sum(values) + sum(counters) + sum(times)):
        return values, counters, times
    kept = [
        index for index, parts in enumerate(zip(values, counters, times, strict=True)) if all(map(math.isfinite, parts))
    ]
    return [values[i] for i in kept], [counters[i] for i in kept], [times[i] for i in kept]


def _dominant(observations: Sequence[Observation]) -> list[float]:
    """The counter of what the job used more of since its first report: CPU seconds, or seconds of its accelerators."""
    cpu = [seen.cpu_seconds for seen in observations]
    if not observations or not observations[-1].accelerator_seconds > observations[0].accelerator_seconds:
        return cpu
    accelerators = [seen.accelerator_seconds for seen in observations]
    return accelerators if accelerators[-1] - accelerators[0] > cpu[-1] - cpu[0] else cpu


def growth(curve: Curve, window: int) -> float | None:
    """Improvement per CPU second between two neighbouring windows of reports.

    The growth efficiency of FlowCon (Zheng et al., 2019): the difference of two interval means over the resource used.
    Its intervals are counted in reports instead of seconds, since jobs here may be done within one interval of 30 s.

    Args:
        curve: The reports.
        window: Reports in each window; fewer while there are not enough.

    Returns:
        Units of ``quality`` per CPU second, negative when it gets worse; None with fewer than two reports, or when no
        resource was used between the windows.
    """
    size = min(window, len(curve.quality) // 2)
    if size < 1:
        return None
    recent, before = slice(-size, None), slice(-2 * size, -size)
    used = mean_of(curve.spent[recent]) - mean_of(curve.spent[before])
    if used <= 0:
        return None
    rate = (mean_of(curve.quality[recent]) - mean_of(curve.quality[before])) / used
    return rate if math.isfinite(rate) else None


def fit_line(curve: Curve, last: int) -> Line | None:
    """Least squares through the ``last`` reports; None with fewer than three or without resource used."""
    x, y = curve.spent[-last:], curve.quality[-last:]
    fit = straight_fit(x, y)
    if len(x) < 3 or fit is None:
        return None
    noise = math.sqrt(fit.squared_error / (len(x) - 2))
    return Line(slope=fit.factor, slope_error=fit.factor_error, noise=noise)


def fit_plateau(curve: Curve) -> Plateau | None:
    """Where the curve levels off, as optimistic as the reports allow.

    Fits ``level - drop * shape(rate * x)`` with exponential, inverse (as SLAQ and Optimus do) and inverse square root
    shapes over a grid of rates; level and drop come from least squares. A straight line is tried too: where it
    clearly rises it has no end, else it is held to go on for ten times the CPU seconds used so far. Of all that explain
    the reports about as well as the best one (F-test at roughly 95 %), the highest level counts.

    Returns:
        None with fewer than five reports or when no resource was used between them.
    """
    chosen = evenly(len(curve.quality), _POINTS_FITTED)
    x, y = curve.spent[chosen], curve.quality[chosen]
    if len(x) < 5 or x[-1] <= x[0]:
        return None
    fits = [(level, error) for level, error in _candidates(x, y) if not math.isnan(level + error)]
    if not fits:
        return None
    best = min(error for _, error in fits)
    freedom = len(x) - 3
    accepted = best * (1 + 4 / freedom) + 1e-18
    level = max(level for level, error in fits if error <= accepted)
    return Plateau(level=max(level, *curve.quality), noise=math.sqrt(best / freedom))


def _candidates(x: Sequence[float], y: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Ways to explain a curve: where each leads to, and the sum of its squared errors."""
    span = x[-1] - x[0]
    units = [(value - x[0]) / span for value in x]
    line = straight_fit(units, y)
    if line is not None:
        rises = line.factor > 2 * line.factor_error
        level = math.inf if rises else line.offset + line.factor * (1 + _LINE_GOES_ON)
        yield level, line.squared_error
    for fit in shaped_fits(units, y, tuple(Shape), _RATES):
        yield fit.level, fit.squared_error


def _since_first(counters: Sequence[float]) -> Iterator[float]:
    """A counter's growth since its first reading; a reading below the one before began at zero again."""
    total, before = 0.0, counters[0] if counters else 0.0
    for value in counters:
        total += value - before if value >= before else max(value, 0.0)
        before = value
        yield total
