"""What a job's quality is predicted to gain from each further core: the prediction of SLAQ-style scheduling.

Grid, weights and the best fit alone are SLAQ's; the least squares are everybody's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter

from tiercel.broker.scheduling.forecast.curve import curve_of
from tiercel.broker.scheduling.forecast.fitting import Shape, ShapedFit, shaped_fits
from tiercel.core.jobs import Direction, Observation

# Decay over the CPU seconds that the fitted reports span: from nearly straight to over after a twentieth of them.
_RATES = (0.25, 0.5, 1.0, 1.7, 3.0, 5.0, 9.0, 20.0)
_SHAPES = (Shape.EXPONENTIAL, Shape.INVERSE)
# Each report counts this much less than the one after it.
_FADING = 0.9
_LEAST_REPORTS = 4


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
    units = [(value - x[0]) / span for value in x]
    weights = [_FADING**age for age in reversed(range(len(x)))]
    fit = max(shaped_fits(units, y, _SHAPES, _RATES, weights), key=attrgetter("explained"), default=None)
    count = max(math.ceil(cores), 1)
    if fit is None:
        return (0.0,) * count
    ends = [1.0 + horizon * step / span for step in range(count + 1)]
    gains = [_gain(fit, begin, end) / progress for begin, end in pairwise(ends)]
    return tuple(gain if math.isfinite(gain) else 0.0 for gain in gains)


def _gain(fit: ShapedFit, begin: float, end: float) -> float:
    """How much higher the curve is at ``end``; never below 0, as a curve that falls promises nothing."""
    before, after = fit.shape.values(fit.rate, (begin, end))
    return max(fit.factor * (after - before), 0.0)
