"""When jobs arrive: processes that draw arrival times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tiercel.broker.simulation.randomness import Random


class Arrivals(Protocol):
    """A process that says when jobs arrive."""

    def times(self, count: int, source: Random) -> Sequence[float]:
        """Seconds from the start of ``count`` arrivals, never falling."""


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Every job at the same moment, ``at`` seconds from the start."""

    at: float = 0.0

    def times(self, count: int, source: Random) -> Sequence[float]:
        """Arrival times; see :class:`Arrivals`."""
        del source
        return [self.at] * count


@dataclass(frozen=True, slots=True)
class Fixed:
    """One job every ``every_seconds``, the first at 0."""

    every_seconds: float

    def times(self, count: int, source: Random) -> Sequence[float]:
        """Arrival times; see :class:`Arrivals`."""
        del source
        return [index * self.every_seconds for index in range(count)]


@dataclass(frozen=True, slots=True)
class Uniform:
    """Times drawn uniformly from 0 to ``within_seconds`` and sorted (Zheng et al., 2019)."""

    within_seconds: float

    def times(self, count: int, source: Random) -> Sequence[float]:
        """Arrival times; see :class:`Arrivals`."""
        return sorted(source.uniform(0.0, self.within_seconds) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson process: independent, exponentially distributed gaps."""

    per_second: float  # arrivals per second in the mean, > 0

    def times(self, count: int, source: Random) -> Sequence[float]:
        """Arrival times; see :class:`Arrivals`."""
        now, times = 0.0, []
        for _ in range(count):
            now += source.expovariate(self.per_second)
            times.append(now)
        return times


@dataclass(frozen=True, slots=True)
class Bursty:
    """A Markov-modulated Poisson process with two states, calm and busy, each left after an exponential time."""

    calm_per_second: float  # arrivals per second while calm, >= 0
    busy_per_second: float  # arrivals per second while busy, > 0
    calm_seconds: float  # how long calm lasts in the mean, > 0
    busy_seconds: float  # how long a burst lasts in the mean, > 0

    def times(self, count: int, source: Random) -> Sequence[float]:
        """Arrival times; see :class:`Arrivals`. It begins calm."""
        now, busy, times = 0.0, False, list[float]()
        until = source.expovariate(1 / self.calm_seconds)
        while len(times) < count:
            rate = self.busy_per_second if busy else self.calm_per_second
            # An exponential gap has no memory: one that crosses the change of state is drawn anew from there.
            candidate = now + source.expovariate(rate) if rate > 0 else until
            if candidate < until:
                now = candidate
                times.append(now)
            else:
                now, busy = until, not busy
                until = now + source.expovariate(1 / (self.busy_seconds if busy else self.calm_seconds))
        return times
