"""Predictions corrected by how far off earlier ones were, so that an 80 % band holds 80 %.

First by how many times later than predicted tiers came in the median. What is left of a prediction's error then is
scored by its own band: 0 where the tier came at the median, -1 and 1 at the outer tenths, by the logarithm of the time.
The outer tenths of earlier scores say where those of the next band belong (split conformal prediction with normalised
scores; Lei et al., 2018; Romano et al., 2019). The median is not corrected by scores: what makes all tiers late has
nothing to do with how certain each forecast is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tiercel.core.predictions import Prediction, PredictionState
from tiercel.core.what_if import Span

LATEST = 200
"""So many settled predictions of a policy are learnt from."""

# Seconds that are added before the logarithm: what is off by less is no error.
_SOFT_SECONDS = 1.0
# What bands leave out, as a standard deviation of the logarithm. Chosen on seeds 200 to 202 of benchmarks/what_if.py.
_LEAST_WIDTH = 0.1
# What a new broker begins with, each as one score: about what made-up runs left (benchmarks/what_if.py). As many
# predictions that were right in the median count beside what came.
_PRIOR = (-2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many times later than drawn tiers come, as a logarithm, and the scores of the outer tenths."""

    later: float = 0.0
    low: float = -1.0
    high: float = 1.0

    def told(self, drawn: Span) -> Span:
        """What to tell in place of what the futures gave."""
        below, above = _widths(drawn)
        spots = (0.0, self.low * below, self.high * above)
        times = ((drawn.seconds + _SOFT_SECONDS) * math.exp(self.later + spot) - _SOFT_SECONDS for spot in spots)
        return Span(*(max(each, 0.0) for each in times))


def calibrations(settled: Iterable[Prediction]) -> Mapping[str, Calibration]:
    """What settled predictions teach, by policy; the latest ones first."""
    found: dict[str, list[tuple[Span, float]]] = {}
    for each in settled:
        of_policy = found.setdefault(each.policy, [])
        if each.state is not PredictionState.OPEN and len(of_policy) < LATEST:
            of_policy.append((each.drawn, math.inf if each.came_seconds is None else each.came_seconds))
    return {policy: calibration(pairs) for policy, pairs in found.items()}


def calibration(settled: Sequence[tuple[Span, float]]) -> Calibration:
    """What settled predictions teach beside what every broker begins with.

    Args:
        settled: What futures gave, and the seconds after which the tier came; infinite where it never did.
    """
    off = [math.log((came + _SOFT_SECONDS) / (drawn.seconds + _SOFT_SECONDS)) for drawn, came in settled]
    later = _ranked([*off, *(0.0 for _ in _PRIOR)], 0.5)
    scores = [(each - later) / _widths(drawn)[each > later] for each, (drawn, _) in zip(off, settled, strict=True)]
    scores += _PRIOR
    return Calibration(later, min(_ranked(scores, 0.1), 0.0), max(_ranked(scores, 0.9), 0.0))


def _ranked(values: Sequence[float], part: float) -> float:
    """The value at a part of all in order, and of one more that is to come; never an infinite one."""
    finite = sorted(each for each in values if math.isfinite(each))
    count = len(values) + 1
    rank = round(part * count) if part == 0.5 else math.floor(part * count) if part < 0.5 else math.ceil(part * count)
    return finite[min(max(rank - 1, 0), len(finite) - 1)]


def _widths(drawn: Span) -> tuple[float, float]:
    low, middle, high = (math.log(each + _SOFT_SECONDS) for each in (drawn.low, drawn.seconds, drawn.high))
    return math.hypot(middle - low, _LEAST_WIDTH), math.hypot(high - middle, _LEAST_WIDTH)
