"""How many requests an endpoint gets: pure functions of time and a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tiercel.broker.simulation.randomness import stream


class RequestRate(Protocol):
    """How many requests arrive at a time."""

    def per_second(self, now: float, seed: int) -> float:
        """Requests per second, ``now`` seconds from the start; the same for the same time and seed."""


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Always the same number of requests per second."""

    requests_per_second: float

    def per_second(self, now: float, seed: int) -> float:
        """Requests per second; see :class:`RequestRate`."""
        del now, seed
        return self.requests_per_second


@dataclass(frozen=True, slots=True)
class SinusoidalRate:
    """A day, as it were: ``mean + amplitude * sin``, never below 0."""

    mean: float  # requests per second in the mean
    amplitude: float  # requests per second
    period_seconds: float  # seconds of one swing, > 0
    phase: float = 0.0  # where it begins, in periods

    def per_second(self, now: float, seed: int) -> float:
        """Requests per second; see :class:`RequestRate`."""
        del seed
        return max(0.0, self.mean + self.amplitude * math.sin(2 * math.pi * (now / self.period_seconds + self.phase)))


@dataclass(frozen=True, slots=True)
class BurstyRate:
    """Calm times and bursts; whether a slot of time is a burst is drawn for each slot on its own."""

    calm: float  # requests per second outside of bursts
    busy: float  # requests per second in a burst
    busy_part: float  # part of the slots that are bursts, in [0, 1]
    slot_seconds: float = 20.0  # length of a slot, > 0

    def per_second(self, now: float, seed: int) -> float:
        """Requests per second; see :class:`RequestRate`."""
        slot = int(now / self.slot_seconds)
        return self.busy if stream(seed, "slot", slot).random() < self.busy_part else self.calm
