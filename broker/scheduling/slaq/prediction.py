"""What a job's quality is predicted to gain from each further core: the fit of SLAQ-style scheduling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul

from tiercel.broker.scheduling.estimation import curve_of
from tiercel.core.jobs import Direction, Observation

# Decay over the CPU seconds that the fitted reports span: from nearly straight to over after a twentieth of them.
_RATES = (0.25, 0.5, 1.0, 1.7, 3.0, 5.0, 9.0, 20.0)
_SHAPES: tuple[Callable[[float], float], ...] = (lambda x: math.exp(-x), lambda x: 1.0 / (1.0 + x))
# Each report counts this much less than the one after it.
_FADING = 0.9
_LEAST_REPORTS = 4


@dataclass(frozen=True, slots=True)
class _Fit:
    """``level + factor * shape(rate * x)``; x is 0 at the first fitted report and 1 at the last."""

    factor: float
    rate: float
    shape: Callable[[float], float]

    def gain(self, begin: float, end: float) -> float:
        """How much higher the curve is at ``end``; never below 0, as a curve that falls promises nothing."""
        return max(self.factor * (self.shape(self.rate * end) - self.shape(self.rate * begin)), 0.0)


def predicted_gains(
    observations: Sequence[Observation], direction: Direction, *, cores: float, horizon: float, recent: int
) -> tuple[float, ...] | None:
    """The gain of quality from each core, the first one first, as fractions of all that the job has gained so far.

    Args:
        observations: Reports, oldest first.
        direction: Whether a larger or a smaller metric is better.
        cores: Cores that the job can use at most; a last part of a core counts as a core.
        horizon: Seconds that each core is given for.
        recent: The latest so many reports are fitted, each counting a tenth less than the one after it.

    Returns:
        Never rising; None with fewer than four reports, or when neither metric nor CPU time has moved.
    """
    curve = curve_of(observations, direction, 0.0)
    progress = max(curve.quality) - min(curve.quality) if curve.quality else 0.0
    if len(curve.quality) < _LEAST_REPORTS or not progress > 0:
        return None
    x, y = curve.spent[-recent:], curve.quality[-recent:]
    span = x[-1] - x[0]
    if not span > 0:
        return None
    fit = _best_fit([(value - x[0]) / span for value in x], y)
    count = max(math.ceil(cores), 1)
    if fit is None:
        return (0.0,) * count
    ends = [1.0 + horizon * step / span for step in range(count + 1)]
    gains = [fit.gain(begin, end) / progress for begin, end in pairwise(ends)]
    return tuple(gain if math.isfinite(gain) else 0.0 for gain in gains)


def _best_fit(x: Sequence[float], y: Sequence[float]) -> _Fit | None:
    """The fit with the smallest weighted squared error; None when no shape varies over ``x``."""
    weights = [_FADING**age for age in reversed(range(len(x)))]
    total = sum(weights)
    mean = sum(map(mul, weights, y)) / total
    rises = [value - mean for value in y]
    weighted = list(map(mul, weights, rises))
    best, explained = None, -1.0
    for shape in _SHAPES:
        for rate in _RATES:
            shaped = [shape(rate * value) for value in x]
            scaled = list(map(mul, weights, shaped))
            variation = sum(map(mul, scaled, shaped)) - sum(scaled) ** 2 / total
            if variation <= 1e-12:
                continue
            together = sum(map(mul, weighted, shaped))
            # The squared error is what there is to explain less this.
            if together * together / variation > explained:
                best, explained = _Fit(together / variation, rate, shape), together * together / variation
    return best
