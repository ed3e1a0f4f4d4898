"""Averages of figures, how sure they are, and figures as result files have them."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

INTERVAL = 0.95
"""Part of the means of drawn samples that an interval holds."""


def mean(values: Iterable[float | None]) -> float | None:
    """Of the values that there are; None without any."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def rounded(value: float | None, digits: int) -> float | None:
    """To so many digits behind the point; None stays None."""
    return None if value is None else round(value, digits)


def bootstrap_interval(values: Sequence[float], *, samples: int = 4000, seed: int = 1) -> tuple[float, float]:
    """Holds the mean of 95 % of samples drawn with replacement; always the same for the same values."""
    generator = random.Random(seed)
    means = sorted(statistics.fmean(generator.choices(values, k=len(values))) for _ in range(samples))
    tail = (1.0 - INTERVAL) / 2.0
    return means[math.floor(tail * len(means))], means[math.ceil((1.0 - tail) * len(means)) - 1]


def percentiles_ms(seconds: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99 and the longest, in milliseconds; of at least one."""
    p50, p99, longest = (round(float(value) * 1e3, 3) for value in np.percentile(seconds, [50, 99, 100]))
    return p50, p99, longest
