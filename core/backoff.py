"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_DOUBLINGS: Final = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double up to a limit."""

    first_seconds: float  # the first
    longest_seconds: float  # no pause is longer

    def seconds(self, failures: int, jitter: float = 0.0) -> float:
        """The pause after some failures.

        Args:
            failures: In a row, from 1.
            jitter: In [0, 1); takes away up to half of the pause, so that many do not come back at the same moment.
        """
        doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
        return min(self.longest_seconds, self.first_seconds * 2.0**doublings) * (1 - jitter / 2)


class Attempts:
    """Counts the failures in a row of one thing that is tried, and says how long to wait, with jitter.

    Args:
        backoff: The pauses.
        chance: Gives numbers in [0, 1).
    """

    def __init__(self, backoff: Backoff, chance: Callable[[], float] = random.random) -> None:
        self._backoff = backoff
        self._chance = chance
        self._failures = 0

    def next_seconds(self) -> float:
        """It failed: how long to wait now."""
        self._failures += 1
        return self._backoff.seconds(self._failures, self._chance())

    def reset(self) -> None:
        """It worked: begin anew."""
        self._failures = 0
