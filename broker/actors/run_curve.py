"""The curve of a job that runs, kept short: what is remembered of it once it is over."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.core.jobs import Direction, Observation

MAX_POINTS = 64


class RunCurve:
    """Collects reports as pairs of CPU seconds and the best metric so far; bounded.

    Args:
        direction: Whether a larger or a smaller metric is better.
        observations: Earlier reports, oldest first.
    """

    def __init__(self, direction: Direction, observations: Iterable[Observation] = ()) -> None:
        self._direction = direction
        self._points: list[tuple[float, float]] = []
        self._last: tuple[float, float] | None = None
        for observation in observations:
            self.add(observation)

    def add(self, observation: Observation) -> None:
        """Take in a report. Only what is better than all before it makes a point."""
        value, spent = observation.value, observation.cpu_seconds
        if not (math.isfinite(value) and math.isfinite(spent)):
            return
        best = value if self._last is None else self._direction.better(self._last[1], value)
        if self._last is not None:
            spent = max(spent, self._last[0])
        if self._last is None or best != self._last[1]:
            self._points.append((spent, best))
            if len(self._points) > 2 * MAX_POINTS:
                self._points = _thinned(self._points, MAX_POINTS)
        self._last = (spent, best)

    def after(self, observation: Observation | None) -> RunCurve:
        """A copy that has taken in one more report, if there is one."""
        copy = RunCurve(self._direction)
        copy._points, copy._last = list(self._points), self._last
        if observation is not None:
            copy.add(observation)
        return copy

    def points(self) -> tuple[tuple[float, float], ...]:
        """At most :data:`MAX_POINTS` pairs, the first and the last report among them; empty before the first."""
        if self._last is None:
            return ()
        ends_flat = self._points[-1] != self._last
        kept = _thinned(self._points, MAX_POINTS - ends_flat)
        return (*kept, self._last) if ends_flat else tuple(kept)


def _thinned(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Evenly chosen by their number, which leaves more where the curve is steep; first and last stay."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(index * step)] for index in range(most)]
