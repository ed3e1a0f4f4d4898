"""How long to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Doubling waits with jitter, so that many agents do not come back at the same moment.

    Args:
        first_seconds: The first wait, before jitter.
        longest_seconds: No wait is longer.
        chance: Gives numbers in [0, 1).
    """

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._chance = chance
        self._next = first_seconds

    def next_seconds(self) -> float:
        """The next wait: between a half and the whole of what is due."""
        due = self._next
        self._next = min(2 * due, self._longest)
        return due * (0.5 + 0.5 * self._chance())

    def reset(self) -> None:
        """Begin anew: it worked."""
        self._next = self._first
