"""Predictions corrected by how far off earlier ones were, so that an 80 % band holds 80 %.

A prediction is scored by where in its own band the tier came: 0 at the median, -1 and 1 at the outer tenths, by the
logarithm of the time. The outer tenths and the median of earlier scores say where the next band and its median
belong (split conformal prediction with normalised scores; Lei et al., 2018; Romano et al., 2019).
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
# A band is never held for narrower, in the logarithm.
_LEAST_WIDTH = 0.05
# What a new broker begins with, each as one score: about what made-up runs left (benchmarks/what_if.py).
_PRIOR = (-2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Scores at which the median and the outer tenths of a told band are."""

    low: float = -1.0
    middle: float = 0.0
    high: float = 1.0

    def told(self, drawn: Span) -> Span:
        """What to tell in place of what the futures gave."""
        return Span(_at(drawn, self.middle), _at(drawn, self.low), _at(drawn, self.high))


def score(drawn: Span, came: float) -> float:
    """Where in a band a tier came; ``came`` may be infinite."""
    off = math.log((came + _SOFT_SECONDS) / (drawn.seconds + _SOFT_SECONDS))
    below, above = _widths(drawn)
    return off / (above if off > 0 else below)


def calibrations(settled: Iterable[Prediction]) -> Mapping[str, Calibration]:
    """What settled predictions teach, by policy; the latest ones first."""
    scores: dict[str, list[float]] = {}
    for each in settled:
        found = scores.setdefault(each.policy, [])
        if each.state is not PredictionState.OPEN and len(found) < LATEST:
            found.append(score(each.drawn, math.inf if each.came_seconds is None else each.came_seconds))
    return {policy: calibration(found) for policy, found in scores.items()}


def calibration(scores: Sequence[float]) -> Calibration:
    """What the scores of settled predictions teach beside those that every broker begins with."""
    ordered = sorted((*_PRIOR, *scores))
    finite = [each for each in ordered if math.isfinite(each)]
    # One more that is to come counts as well: hence the rank of n + 1.
    last, count = len(finite) - 1, len(ordered) + 1
    low, middle, high = (
        finite[min(max(rank, 0), last)]
        for rank in (math.floor(0.1 * count) - 1, round(0.5 * count) - 1, math.ceil(0.9 * count) - 1)
    )
    return Calibration(low, middle, high)


def _widths(drawn: Span) -> tuple[float, float]:
    low, middle, high = (math.log(each + _SOFT_SECONDS) for each in (drawn.low, drawn.seconds, drawn.high))
    return max(middle - low, _LEAST_WIDTH), max(high - middle, _LEAST_WIDTH)


def _at(drawn: Span, where: float) -> float:
    below, above = _widths(drawn)
    off = where * (above if where > 0 else below)
    return max((drawn.seconds + _SOFT_SECONDS) * math.exp(off) - _SOFT_SECONDS, 0.0)
