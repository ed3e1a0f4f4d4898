"""How long a model takes by rows, and what follows for the size of its batches. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# What a run costs besides the model: handing it to a thread and back, putting the batch together, caches that the model
# has filled with its own. From the CPU of a request in batches of 2, 4, 8 and 16 (ResNet-18, width 16, all of the
# server on one core): 100 to 320 us. A run that is handed again and again, with nothing in between, shows 40.
HAND_OVER_SECONDS = 150e-6
# A batch that is larger has to pay at least this fraction per row, since whoever is in it waits longer.
_WORTH = 0.05
# Where so many wait anyway, how soon the queue is through is what counts. Costs of sizes that are alike differ by so
# much in the few runs that loading has time for, and a larger batch takes fewer turns with the event loop.
_BY_CHANCE = 0.02
# Gains may come slowly: ResNet-18 of 45 MB saves 1 to 3 % with each doubling, up to 32 rows.
_WORTH_A_LOOK = 0.02


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """Measured times of one model."""

    rows: tuple[int, ...]  # sizes of batches that were measured, rising, the first is 1
    seconds: tuple[float, ...]  # the fastest run of each

    def __post_init__(self) -> None:
        if not self.rows or len(self.rows) != len(self.seconds) or list(self.rows) != sorted(set(self.rows)):
            raise ValueError("a profile needs a time for each of rising sizes")

    def estimate(self, rows: int) -> float:
        """Seconds that a batch of ``rows`` takes: between measured sizes on a line, beyond them in proportion."""
        sizes, seconds = self.rows, self.seconds
        index = bisect_left(sizes, rows)
        if index == len(sizes):
            return seconds[-1] * rows / sizes[-1]
        if index == 0 or sizes[index] == rows:
            return seconds[index]
        share = (rows - sizes[index - 1]) / (sizes[index] - sizes[index - 1])
        return seconds[index - 1] + share * (seconds[index] - seconds[index - 1])

    def best_rows(self) -> int:
        """The smallest batch whose cost per row is about as low as that of any; larger ones would only wait longer."""
        costs = costs_per_row(self.rows, self.seconds)
        bound = min(costs) * (1 + _WORTH)
        return next(rows for rows, cost in zip(self.rows, costs, strict=True) if cost <= bound)

    def queue_rows(self) -> tuple[int, ...]:
        """Larger batches for where at least so many wait, rising: none is slower for it than smaller ones.

        There are none where the best is one row: such a model gains next to nothing in a queue, either.
        """
        costs = costs_per_row(self.rows, self.seconds)
        begin = self.rows.index(self.best_rows())
        if not begin:
            return ()
        found: list[int] = []
        least = costs[begin]
        for rows, cost in zip(self.rows[begin + 1 :], costs[begin + 1 :], strict=True):
            if cost <= least * (1 + _BY_CHANCE):
                found.append(rows)
            least = min(least, cost)
        return tuple(found)

    def most_rows(self) -> int:
        """The largest batch that calls are put together to."""
        return (self.best_rows(), *self.queue_rows())[-1]

    def rows_within(self, budget: float) -> int:
        """The largest measured batch that takes at most ``budget`` seconds, smaller ones too; 0 where there is none."""
        found = 0
        for rows, seconds in zip(self.rows, self.seconds, strict=True):
            if seconds > budget:
                break
            found = rows
        return found


def costs_per_row(rows: Sequence[int], seconds: Sequence[float]) -> list[float]:
    """Seconds per row, handing over included, by size."""
    return [(each + HAND_OVER_SECONDS) / size for size, each in zip(rows, seconds, strict=True)]


def is_faster(one: LatencyProfile | None, other: LatencyProfile | None) -> bool:
    """Whether a row of a model takes less time than one of another, each in its best batch; True where nobody knows."""
    if one is None or other is None:
        return True
    least, others = (
        min(seconds / rows for rows, seconds in zip(each.rows, each.seconds, strict=True)) for each in (one, other)
    )
    return least < others


def pays_to_go_on(rows: Sequence[int], seconds: Sequence[float]) -> bool:
    """Whether a batch of twice the rows is worth a look: one of the last three doublings paid."""
    costs = costs_per_row(rows, seconds)
    return len(costs) < 4 or min(costs[-3:]) < costs[-4] * (1 - _WORTH_A_LOOK)


class DrainRate:
    """How fast a model's queue empties: rows per second while it is not empty, whatever limits it.

    It is measured where it counts, at the queue, so that caps, weights, other models and training are all in it.
    """

    __slots__ = ("_last", "_seconds_per_row")

    def __init__(self) -> None:
        self._seconds_per_row = 0.0
        self._last: float | None = None

    def drained(self, rows: int, now: float, backlog: bool, seconds: float = math.inf) -> None:
        """A run of ``rows`` ended at ``now``.

        Args:
            rows: Its rows.
            now: Seconds of any steady clock.
            backlog: Whether calls wait still; if not, the time until the next run says nothing.
            seconds: How long it ran. A queue empties at least as fast as one run does, so that what was slow once is
                not held to be slow for as long as nobody waits.
        """
        if not rows:
            return
        if self._last is not None:
            each = (now - self._last) / rows
            self._seconds_per_row += 0.2 * (each - self._seconds_per_row) if self._seconds_per_row else each
        elif seconds / rows < self._seconds_per_row:
            self._seconds_per_row += 0.2 * (seconds / rows - self._seconds_per_row)
        self._last = now if backlog else None

    def wait(self, rows: int) -> float:
        """Seconds until ``rows`` that wait are through; 0 while nothing is known."""
        return self._seconds_per_row * rows
