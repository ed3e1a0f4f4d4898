"""Which of several nodes is asked: the one where an answer is expected soonest. Pure.

What is expected is the measured delay times one more than what is under way. What this server has under way at a node
it knows exactly, and what others have there shows in the delay; nothing is pushed, so that they do not all run to the
same node at once. A node that fails looks fast, so a failure counts as the whole time that there was. What was measured
fades, so that who was slow once is asked again. Who is not known is taken to be as fast as the fastest that is: it gets
its part, and is not flooded while others are slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

EXPECTED_SECONDS: Final = 0.001
"""What a node is expected to take where nothing is known of any."""
HALF_LIFE_SECONDS: Final = 2.0
_WEIGHT: Final = 0.2


@dataclass(frozen=True, slots=True)
class Load:
    """What is known of a node."""

    in_flight: int = 0  # requests of this server that it has not answered
    delay_seconds: float = EXPECTED_SECONDS  # how long its answers took lately
    measured_at: float | None = None  # when that was measured, seconds of a steady clock; None: it never was


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may be asked."""

    load: Load = Load()  # what is known of it
    draining: bool = False  # it is to stop: others are asked first


def answered(load: Load, seconds: float, now: float) -> Load:
    """An answer came after so many seconds."""
    before = seconds if load.measured_at is None else delay_now(load, now)
    return replace(load, delay_seconds=before + _WEIGHT * (seconds - before), measured_at=now)


def failed(load: Load, allowed_seconds: float, now: float) -> Load:
    """No answer came, of which nobody knows how long it would have taken: all the time that there was."""
    return replace(load, delay_seconds=max(allowed_seconds, delay_now(load, now)), measured_at=now)


def delay_now(load: Load, now: float, expected: float = EXPECTED_SECONDS) -> float:
    """What its delay is taken for by now: what was measured comes nearer to what is expected of anybody, with time."""
    if load.measured_at is None:
        return expected
    above = load.delay_seconds - expected
    return expected + above * math.pow(0.5, max(0.0, now - load.measured_at) / HALF_LIFE_SECONDS)


def least_delay(candidates: Sequence[Candidate]) -> float:
    """What is expected of nodes of which nothing is known: what the fastest of the others takes."""
    known = (each.load.delay_seconds for each in candidates if each.load.measured_at is not None)
    return min(known, default=EXPECTED_SECONDS)


def cost(load: Load, now: float, expected: float = EXPECTED_SECONDS) -> float:
    """Seconds after which one more request is expected to be answered."""
    return (load.in_flight + 1) * delay_now(load, now, expected)


def choose(candidates: Sequence[Candidate], now: float, draw: Callable[[int], int]) -> int:
    """The index of the one to ask.

    Args:
        candidates: One at least.
        now: Seconds of the clock.
        draw: Draws a number from 0 up to, and without, the one it is given.
    """
    staying = [index for index, each in enumerate(candidates) if not each.draining] or [*range(len(candidates))]
    expected = least_delay([candidates[index] for index in staying])
    costs = {index: cost(candidates[index].load, now, expected) for index in staying}
    least = min(costs.values())
    equal = [index for index in staying if costs[index] == least]
    return equal[0] if len(equal) == 1 else equal[draw(len(equal))]
