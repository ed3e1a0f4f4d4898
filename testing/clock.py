"""Time that passes only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class ManualClock:
    """Keeps the contract of :class:`tiercel.broker.actors.clock.Clock`."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start
        self._ahead = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return self._now + self._ahead

    def alive(self) -> float:
        """Seconds that the broker has been alive."""
        return self._now

    def tick(self) -> None:
        """Nothing: here nobody pauses."""

    def set_forward(self, seconds: float) -> None:
        """Somebody sets the machine's clock, back if it is negative; no time passes."""
        self._ahead += seconds

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass: until somebody advances the clock that far."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass at once; whoever's time has come wakes up."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            *_, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    def wakes_within(self, seconds: float) -> bool:
        """Whether somebody sleeps who will wake up within so many seconds."""
        return any(due <= self._now + seconds and not woken.done() for due, _, woken in self._sleepers)
