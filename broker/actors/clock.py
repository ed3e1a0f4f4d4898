"""Time as an argument: the live clock, and the contract that a test's clock keeps as well."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from tiercel.core.moments import Moment

if TYPE_CHECKING:
    from collections.abc import Callable

# Between two ticks of the broker's own, which are half a second apart, no more than this counts as lived.
MAX_STEP_SECONDS = 1.0


class Clock(Protocol):
    """Where actors get the time from."""

    def now(self) -> float:
        """Seconds since the Unix epoch: for what people read and for what is stored. Somebody may set it."""

    def alive(self) -> float:
        """Seconds that the broker has been alive: for how long somebody has been silent.

        It never goes back. While the broker was stopped, or its machine slept, nobody could be heard, so that such a
        pause adds next to nothing.
        """

    def tick(self) -> None:
        """Note that the broker is at work; whoever lets time pass says so, again and again."""

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""


class SystemClock:
    """The machine's clocks.

    Args:
        wall: Seconds since the Unix epoch.
        monotonic: Seconds that never go back.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lived = 0.0
        self._ticked_at = monotonic()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return self._wall()

    def alive(self) -> float:
        """Seconds that the broker has been alive, of each time between two ticks no more than MAX_STEP_SECONDS."""
        return self._lived + min(self._monotonic() - self._ticked_at, MAX_STEP_SECONDS)

    def tick(self) -> None:
        """Note that the broker is at work."""
        self._lived = self.alive()
        self._ticked_at = self._monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        await asyncio.sleep(seconds)


def moment_of(clock: Clock) -> Moment:
    """The present, as the machines are told it."""
    return Moment(clock.now(), clock.alive())
