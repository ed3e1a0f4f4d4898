"""When requests come: sorted times in seconds from 0, from a seeded generator."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Literal

Shape = Literal["constant", "sinusoidal", "bursty"]
SHAPES: tuple[Shape, ...] = ("constant", "sinusoidal", "bursty")

# The bursty shape is a process of two states, calm and burst, that holds each for an exponential time.
_BURST_SHARE = 0.25
_BURST_FACTOR = 2.2
_CALM_FACTOR = (1.0 - _BURST_SHARE * _BURST_FACTOR) / (1.0 - _BURST_SHARE)
_AMPLITUDE = 0.6


def arrivals(shape: Shape, rate: float, duration: float, period: float, rng: random.Random) -> list[float]:
    """Arrival times of one run.

    Args:
        shape: ``constant`` is a Poisson process; ``sinusoidal`` one whose rate swings by 60 %; ``bursty`` is a
            Markov-modulated one with 2.2 times the mean rate for a quarter of the time and 0.6 times else.
        rate: Mean requests per second, above 0.
        duration: Seconds.
        period: Seconds of one swing, or of a burst and a calm together in the mean.
        rng: The source of chance.
    """
    if shape == "constant":
        return _thinned(lambda _: rate, rate, duration, rng)
    if shape == "sinusoidal":
        phase = rng.random() * 2.0 * math.pi
        swing = 2.0 * math.pi / period
        highest = rate * (1.0 + _AMPLITUDE)
        return _thinned(lambda at: rate * (1.0 + _AMPLITUDE * math.sin(swing * at + phase)), highest, duration, rng)
    return _bursty(rate, duration, period, rng)


def _thinned(rate_at: Callable[[float], float], highest: float, duration: float, rng: random.Random) -> list[float]:
    times: list[float] = []
    now = rng.expovariate(highest)
    while now < duration:
        if rng.random() * highest <= rate_at(now):
            times.append(now)
        now += rng.expovariate(highest)
    return times


def _bursty(rate: float, duration: float, period: float, rng: random.Random) -> list[float]:
    times: list[float] = []
    now = 0.0
    burst = rng.random() < _BURST_SHARE
    while now < duration:
        stay = rng.expovariate(1.0 / (period * (_BURST_SHARE if burst else 1.0 - _BURST_SHARE)))
        end = min(now + stay, duration)
        current = rate * (_BURST_FACTOR if burst else _CALM_FACTOR)
        next_arrival = now + rng.expovariate(current)
        while next_arrival < end:
            times.append(next_arrival)
            next_arrival += rng.expovariate(current)
        now, burst = end, not burst
    return times
