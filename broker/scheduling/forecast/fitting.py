"""Least squares for learning curves: the one fit that all forecasts rest on.

A learning curve is taken for ``level + factor * shape(rate * x)``. For a given shape and rate the level and the factor
come from weighted linear least squares (variable projection); shapes and rates are tried from a grid. Which grid, how
much old reports count, and whether the best, the most optimistic or all fits by their errors are gone by is up to whom
they are for.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

# A shape that varies less than this over the reports cannot be told from a constant.
_LEAST_VARIATION = 1e-12


class Shape(enum.Enum):
    """How a curve falls from 1 at 0 towards 0."""

    EXPONENTIAL = "exponential"
    INVERSE = "inverse"
    INVERSE_ROOT = "inverse square root"

    def values(self, rate: float, x: Iterable[float]) -> list[float]:
        """Its values at ``rate * x``."""
        if self is Shape.EXPONENTIAL:
            return [math.exp(-rate * each) for each in x]
        if self is Shape.INVERSE:
            return [1.0 / (1.0 + rate * each) for each in x]
        return [1.0 / math.sqrt(1.0 + rate * each) for each in x]


class ShapedFit(NamedTuple):
    """``level + factor * shape(rate * x)``."""

    shape: Shape  # its shape
    rate: float  # its rate
    level: float  # where it leads to
    factor: float  # how far it is from there at 0; below 0 for a curve that rises
    explained: float  # the part of the weighted sum of squares of y that it explains
    squared_error: float  # the weighted sum of its squared errors


def shaped_fits(
    x: Sequence[float],
    y: Sequence[float],
    shapes: Sequence[Shape],
    rates: Sequence[float],
    weights: Sequence[float] | None = None,
) -> Iterator[ShapedFit]:
    """The least-squares fit of each shape at each rate, but for those that do not vary over ``x``.

    Sums of products instead of errors, which is several times faster and good to a rounding error of the spread of y.

    Args:
        x: Where it was measured, >= 0.
        y: What was measured.
        shapes: Those tried.
        rates: Those tried, for each of the shapes.
        weights: What each point counts, > 0; None for all alike.
    """
    total = float(len(x)) if weights is None else sum(weights)
    mean = (sum(y) if weights is None else sum(map(mul, weights, y))) / total
    rises = [value - mean for value in y]
    spread = sum(map(mul, rises if weights is None else map(mul, weights, rises), rises))
    for shape in shapes:
        for rate in rates:
            shaped = shape.values(rate, x)
            mean_shaped = (sum(shaped) if weights is None else sum(map(mul, weights, shaped))) / total
            falls = [value - mean_shaped for value in shaped]
            scaled = falls if weights is None else list(map(mul, weights, falls))
            variation = sum(map(mul, scaled, falls))
            if variation > _LEAST_VARIATION:
                together = sum(map(mul, scaled, rises))
                factor = together / variation
                explained = factor * together
                level = mean - factor * mean_shaped
                yield ShapedFit(shape, rate, level, factor, explained, max(spread - explained, 0.0))


@dataclass(frozen=True, slots=True)
class StraightFit:
    """``offset + factor * x``."""

    offset: float  # its value at 0
    factor: float  # its slope
    factor_error: float  # standard error of the slope; 0 with fewer than three points
    squared_error: float  # the sum of its squared errors


def straight_fit(x: Sequence[float], y: Sequence[float]) -> StraightFit | None:
    """The least-squares fit of a straight line; None when x does not vary."""
    mean_x = mean_of(x) if x else 0.0
    # A product overflows to infinity where a power would raise.
    spread = sum((value - mean_x) * (value - mean_x) for value in x)
    if not 0 < spread < math.inf:
        return None
    mean_y = mean_of(y)
    factor = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    offset = mean_y - factor * mean_x
    errors = [b - offset - factor * a for a, b in zip(x, y, strict=True)]
    squared_error = sum(error * error for error in errors)
    factor_error = math.sqrt(squared_error / (len(x) - 2) / spread) if len(x) > 2 else 0.0
    return StraightFit(offset, factor, factor_error, squared_error)


def evenly(count: int, most: int) -> slice:
    """At most so many of ``count`` reports that a fit stays cheap, spread evenly, the latest always among them."""
    step = max(1, math.ceil(count / most))
    return slice((count - 1) % step, count, step)


def mean_of(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)
