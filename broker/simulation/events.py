"""Virtual time: what happens when, in an order that depends on nothing but the order in which it was planned."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class EventQueue:
    """The virtual clock and what is planned on it.

    Attributes:
        now: Seconds from the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Action]] = []
        self._count = 0

    def at(self, when: float, action: Action) -> None:
        """Plan an action for a time that is not over; what is planned first for the same time happens first."""
        self._count += 1
        heapq.heappush(self._planned, (max(when, self.now), self._count, action))

    def advance(self) -> None:
        """Go to the next time for which anything is planned."""
        self.now = self._planned[0][0]

    def pop(self) -> Action | None:
        """The next action of the present time; None when there is no other."""
        if self._planned and self._planned[0][0] <= self.now:
            return heapq.heappop(self._planned)[2]
        return None
