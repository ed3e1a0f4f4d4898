"""What a job's reports say about its learning: how fast it improves, and where it levels off.

Everything is measured per CPU second, never per second on the wall, so that a job that was given little does not look
like a job that learns slowly. Of a job that keeps an accelerator busier than the CPU, per second of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from tiercel.core.jobs import Direction, Observation

_POINTS_FITTED = 48
# A curve that might be a flat line may go on along it for so many times the CPU seconds used so far.
_LINE_GOES_ON = 10.0
_RATES = tuple(0.5 * 1.3**power for power in range(20))
_SHAPES: tuple[Callable[[float, Sequence[float]], list[float]], ...] = (
    lambda rate, units: [math.exp(-rate * unit) for unit in units],
    lambda rate, units: [1.0 / (1.0 + rate * unit) for unit in units],
    lambda rate, units: [1.0 / math.sqrt(1.0 + rate * unit) for unit in units],
)


@dataclass(frozen=True, slots=True)
class Curve:
    """A job's reports, ready for arithmetic.

    Attributes:
        spent: CPU seconds used since the first report, never decreasing; of a job that used more seconds of its
            accelerators since then, those instead. Wall seconds while nothing was measured.
        quality: The metric, turned so that larger is better, divided by ``scale``: within [-1, 1].
        scale: What one unit of ``quality`` is in units of the metric.
        target: The next tier's target in units of ``quality``.
        direction: Whether a larger or a smaller metric is better.
    """

    spent: tuple[float, ...]
    quality: tuple[float, ...]
    scale: float
    target: float
    direction: Direction

    @property
    def gap(self) -> float:
        """From the best report so far to the target, in units of ``quality``; needs a report."""
        return self.target - max(self.quality)

    def metric(self, quality: float) -> float:
        """A quality in the metric's own unit and sign."""
        return quality * self.scale if self.direction is Direction.MAX else -quality * self.scale


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line through reports, in units of ``quality`` per CPU second.

    Attributes:
        slope: Its rise.
        slope_error: Standard error of the slope.
        noise: Standard deviation of the reports around it.
    """

    slope: float
    slope_error: float
    noise: float


@dataclass(frozen=True, slots=True)
class Plateau:
    """Where a curve levels off, in units of ``quality``.

    Attributes:
        level: The most optimistic level that the reports allow; not below the best report. Infinite while the curve
            may just as well be a line that rises.
        noise: Standard deviation of the reports around the best fit.
    """

    level: float
    noise: float


def curve_of(observations: Sequence[Observation], direction: Direction, target: float) -> Curve:
    """The finite reports as a curve towards ``target``."""
    values, counters, times = _finite(observations)
    sign = 1.0 if direction is Direction.MAX else -1.0
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
    devices = [seen.accelerator_seconds for seen in observations]
    return devices if devices[-1] - devices[0] > cpu[-1] - cpu[0] else cpu


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
    used = _mean(curve.spent[recent]) - _mean(curve.spent[before])
    if used <= 0:
        return None
    rate = (_mean(curve.quality[recent]) - _mean(curve.quality[before])) / used
    return rate if math.isfinite(rate) else None


def fit_line(curve: Curve, last: int) -> Line | None:
    """Least squares through the ``last`` reports; None with fewer than three or without resource used."""
    x, y = curve.spent[-last:], curve.quality[-last:]
    fit = _least_squares(x, y)
    if len(x) < 3 or fit is None:
        return None
    noise = math.sqrt(fit.squared_error / (len(x) - 2))
    return Line(slope=fit.factor, slope_error=_factor_error(x, fit), noise=noise)


def fit_plateau(curve: Curve) -> Plateau | None:
    """Where the curve levels off, as optimistic as the reports allow.

    Fits ``level - drop * shape(rate * x)`` with exponential, inverse (as SLAQ and Optimus do) and inverse square root
    shapes over a grid of rates; level and drop come from least squares. A straight line is tried too: where it
    clearly rises it has no end, else it is held to go on for ten times the CPU seconds used so far. Of all that explain
    the reports about as well as the best one (F-test at roughly 95 %), the highest level counts.

    Returns:
        None with fewer than five reports or when no resource was used between them.
    """
    x, y = _thinned(curve)
    if len(x) < 5 or x[-1] <= x[0]:
        return None
    fits = [fit for fit in _candidates(x, y) if not math.isnan(fit.level + fit.squared_error)]
    if not fits:
        return None
    best = min(fit.squared_error for fit in fits)
    freedom = len(x) - 3
    accepted = best * (1 + 4 / freedom) + 1e-18
    level = max(fit.level for fit in fits if fit.squared_error <= accepted)
    return Plateau(level=max(level, *curve.quality), noise=math.sqrt(best / freedom))


@dataclass(frozen=True, slots=True)
class _Fit:
    """``offset + factor * x`` and the sum of its squared errors."""

    offset: float
    factor: float
    squared_error: float


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A way to explain a curve: where it leads to, and the sum of its squared errors."""

    level: float
    squared_error: float


def _candidates(x: Sequence[float], y: Sequence[float]) -> Iterator[_Candidate]:
    span = x[-1] - x[0]
    units = [(value - x[0]) / span for value in x]
    line = _least_squares(units, y)
    if line is not None:
        rises = line.factor > 2 * _factor_error(units, line)
        level = math.inf if rises else line.offset + line.factor * (1 + _LINE_GOES_ON)
        yield _Candidate(level, line.squared_error)
    mean = _mean(y)
    rises_by = [value - mean for value in y]
    spread = sum(map(mul, rises_by, rises_by))
    for shape in _SHAPES:
        for rate in _RATES:
            yield from _shaped(shape(rate, units), rises_by, mean, spread)


def _shaped(shaped: Sequence[float], rises: Sequence[float], mean: float, spread: float) -> Iterator[_Candidate]:
    """The least-squares fit of ``level + factor * shaped`` to ``mean + rises``; none where ``shaped`` does not vary.

    Sums of products instead of errors, which is several times faster and good to a rounding error of ``spread``.
    """
    mean_shaped = _mean(shaped)
    variation = sum(map(mul, shaped, shaped)) - len(shaped) * mean_shaped * mean_shaped
    if variation > 1e-12:
        together = sum(map(mul, shaped, rises))
        factor = together / variation
        yield _Candidate(mean - factor * mean_shaped, max(spread - factor * together, 0.0))


def _least_squares(x: Sequence[float], y: Sequence[float]) -> _Fit | None:
    """Fit ``offset + factor * x``; None when x does not vary."""
    spread = _spread(x)
    if not 0 < spread < math.inf:
        return None
    mean_x, mean_y = _mean(x), _mean(y)
    factor = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    offset = mean_y - factor * mean_x
    errors = [b - offset - factor * a for a, b in zip(x, y, strict=True)]
    return _Fit(offset=offset, factor=factor, squared_error=sum(error * error for error in errors))


def _factor_error(x: Sequence[float], fit: _Fit) -> float:
    """Standard error of a fit's factor; needs three values of x, not all alike."""
    return math.sqrt(fit.squared_error / (len(x) - 2) / _spread(x))


def _spread(values: Sequence[float]) -> float:
    """Sum of squared distances from the mean. A product overflows to infinity where a power would raise."""
    mean = _mean(values) if values else 0.0
    return sum((value - mean) * (value - mean) for value in values)


def _thinned(curve: Curve) -> tuple[list[float], list[float]]:
    """At most so many reports that a fit stays cheap, spread evenly, the latest always among them."""
    count = len(curve.quality)
    step = max(1, math.ceil(count / _POINTS_FITTED))
    chosen = range((count - 1) % step, count, step)
    return [curve.spent[index] for index in chosen], [curve.quality[index] for index in chosen]


def _since_first(counters: Sequence[float]) -> Iterator[float]:
    """A counter's growth since its first reading; a reading below the one before began at zero again."""
    total, before = 0.0, counters[0] if counters else 0.0
    for value in counters:
        total += value - before if value >= before else max(value, 0.0)
        before = value
        yield total


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
