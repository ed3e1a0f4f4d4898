"""How often a version was right in use, by what applications say of its answers afterwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_Z: Final = 1.959963984540054  # of 95 %


def wilson(right: int, of: int) -> tuple[float, float]:
    """Wilson's score interval, 95 %, of a fraction that was ``right`` of ``of`` times, at least once."""
    mean, square = right / of, _Z * _Z
    middle = (mean + square / (2 * of)) / (1 + square / of)
    half = _Z * math.sqrt(mean * (1 - mean) / of + square / (4 * of * of)) / (1 + square / of)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class VersionFeedback:
    """What was said of the last rows that a version answered, at one node or at several."""

    version: int
    rows: int  # that feedback came on, at least one
    right: int  # of them, answered rightly


@dataclass(frozen=True, slots=True)
class AccuracyInUse:
    """The same for people: a fraction with its interval."""

    rows: int  # that feedback came on
    accuracy: float
    low: float  # the ends of its interval, 95 %
    high: float

    @classmethod
    def of(cls, heard: VersionFeedback) -> AccuracyInUse:
        """What was heard of a version."""
        return cls(heard.rows, heard.right / heard.rows, *wilson(heard.right, heard.rows))
