"""Learning curves: what metric a training run shows after how much work.

Work is counted in CPU seconds of training as the run needs them alone on a node, start-up excluded. The families are
the ones that learning curves are commonly fitted with; the sigmoid starts slowly, as models do whose loss lies on a
plateau first. The stretched exponential is quick at first and slow for long, and the stepped one seems to level off
until its learning rate is lowered: no forecast of ours is fitted with either.
"""

from __future__ import annotations

import enum
import itertools
import math
from dataclasses import dataclass
from typing import Protocol

from tiercel.broker.scheduling.interface import CurvePoint
from tiercel.broker.simulation.randomness import Random
from tiercel.core.jobs import Direction


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What one run will report, if nothing stops it."""

    work: tuple[float, ...]  # CPU seconds of training until each report, start-up excluded; rising
    values: tuple[float, ...]  # the metric of each report

    def first_reaching(self, target: float, direction: Direction) -> int | None:
        """Index of the first report that meets ``target``, or None."""
        return next((index for index, value in enumerate(self.values) if direction.reaches(value, target)), None)


class Curve(Protocol):
    """Anything that can say what a run will report."""

    def trajectory(
        self, reports: int, work_per_report: float, startup_cpu_seconds: float, noise: float, source: Random
    ) -> Trajectory:
        """One run.

        Args:
            reports: Reports it makes at most.
            work_per_report: CPU seconds of training between two reports.
            startup_cpu_seconds: CPU seconds before training begins.
            noise: Standard deviation of what is added to each value.
            source: Where the noise comes from.
        """


# The part of the way at which a stepped curve seems to level off.
_STEP = 0.3


class Family(enum.Enum):
    """The shape of a curve; ``x`` is work divided by the curve's scale."""

    EXPONENTIAL = "exponential"
    HYPERBOLIC = "hyperbolic"
    POWER = "power"
    SIGMOID = "sigmoid"
    STRETCHED = "stretched"
    STEPPED = "stepped"


@dataclass(frozen=True, slots=True)
class FamilyCurve:
    """A curve of a family, from ``start`` towards ``plateau``."""

    family: Family  # its shape
    start: float  # the metric before any training
    # The metric after endless training. A tier beyond it is hopeless.
    plateau: float
    scale: float  # CPU seconds of training; the larger, the slower
    # Of the power family, > 0: ``(1 + x) ** -exponent`` is left of the way; of the stretched one ``exp(-(x **
    # exponent))``.
    exponent: float = 0.5
    midpoint: float = 3.0  # in scales: where the sigmoid is steepest, and where the stepped one falls anew

    def __post_init__(self) -> None:
        """Refuse what no run could follow."""
        if not (self.scale > 0 and self.exponent > 0 and self.midpoint >= 0):
            msg = "a curve's scale and exponent must be positive, its midpoint not negative"
            raise ValueError(msg)

    def value(self, work: float) -> float:
        """The metric after ``work`` CPU seconds of training, without noise."""
        return self.plateau + (self.start - self.plateau) * self._left(work / self.scale)

    def work_to(self, target: float) -> float | None:
        """CPU seconds of training after which the metric without noise meets ``target``; None when it never will."""
        way = self.plateau - self.start
        left = (self.plateau - target) / way if way else 0.0
        if left >= 1:
            return 0.0
        return self._inverse(left) * self.scale if left > 0 else None

    def trajectory(
        self, reports: int, work_per_report: float, startup_cpu_seconds: float, noise: float, source: Random
    ) -> Trajectory:
        """One run of it; see :class:`Curve`."""
        del startup_cpu_seconds
        work = tuple(work_per_report * number for number in range(1, reports + 1))
        if noise > 0:
            return Trajectory(work, tuple(self.value(done) + source.gauss(0.0, noise) for done in work))
        return Trajectory(work, tuple(self.value(done) for done in work))

    def _left(self, x: float) -> float:
        """Which part of the way from start to plateau is left."""
        if self.family is Family.EXPONENTIAL:
            return math.exp(-x)
        if self.family is Family.HYPERBOLIC:
            return 1 / (1 + x)
        if self.family is Family.POWER:
            return float((1 + x) ** -self.exponent)
        if self.family is Family.STRETCHED:
            return math.exp(-(x**self.exponent))
        if self.family is Family.STEPPED:
            return _stepped(min(x, self.midpoint)) * math.exp(-max(x - self.midpoint, 0.0))
        return _falling(x - self.midpoint) / _falling(-self.midpoint)

    def _inverse(self, left: float) -> float:
        """Where that part of the way is left."""
        if self.family is Family.EXPONENTIAL:
            return -math.log(left)
        if self.family is Family.HYPERBOLIC:
            return 1 / left - 1
        if self.family is Family.POWER:
            return float(left ** (-1 / self.exponent) - 1)
        if self.family is Family.STRETCHED:
            return float((-math.log(left)) ** (1 / self.exponent))
        if self.family is Family.STEPPED:
            step = _stepped(self.midpoint)
            return self.midpoint - math.log(left / step) if left < step else -math.log((left - _STEP) / (1 - _STEP))
        part = left * _falling(-self.midpoint)
        return self.midpoint + math.log((1 - part) / part)


def _stepped(x: float) -> float:
    return _STEP + (1 - _STEP) * math.exp(-x)


def _falling(x: float) -> float:
    return 1 / (1 + math.exp(min(x, 700.0)))


@dataclass(frozen=True, slots=True)
class RecordedCurve:
    """A run that was recorded alone on a node."""

    points: tuple[CurvePoint, ...]  # its reports; ``cpu_seconds`` include the start-up and rise

    def __post_init__(self) -> None:
        """Refuse what is no recording."""
        times = [point.cpu_seconds for point in self.points]
        if not times or any(later <= earlier for earlier, later in itertools.pairwise(times)):
            msg = "a recorded curve needs at least one point, and its CPU seconds must rise"
            raise ValueError(msg)

    def trajectory(
        self, reports: int, work_per_report: float, startup_cpu_seconds: float, noise: float, source: Random
    ) -> Trajectory:
        """The run again, ``work_per_report`` and noise aside: both are in the recording."""
        del work_per_report, noise, source
        work: list[float] = []
        for point in self.points[:reports]:
            least = work[-1] + 1e-9 if work else 1e-9
            work.append(max(point.cpu_seconds - startup_cpu_seconds, least))
        return Trajectory(tuple(work), tuple(point.value for point in self.points[:reports]))
