"""What a scheduler sees and what it may decide. Everything here is immutable; seconds and fractions throughout.

A scheduler is asked only when a worker is free and something waits ("acts only when a GPU is free", Fang et al.), and
answers with a variant, a batch size and the kind of worker, or None to wait for more requests or another worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from tiercel.serving.scheduling.utility import Utility

BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes, in rows, among which schedulers choose."""

PATIENCE = 0.1
"""Fraction of the objective after which a scheduler that waited is asked again, if no request came before."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How accurate a variant is and how long it runs on a worker."""

    name: str  # of the variant
    accuracy: float  # a fraction of 1
    # Of one run, for each of the first of :data:`BATCHES`; not falling. A variant that takes no batches has one entry.
    seconds: tuple[float, ...]
    fixed: float = field(init=False)  # ``c`` of the least-squares fit ``c + k * rows``, not below 0
    per_row: float = field(init=False)  # ``k`` of it, not below 0

    def __post_init__(self) -> None:
        if not 0 < len(self.seconds) <= len(BATCHES):
            raise ValueError(f"profile '{self.name}' needs 1 to {len(BATCHES)} durations, not {len(self.seconds)}")
        fixed, per_row = _affine(self.seconds)
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "per_row", per_row)

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes it can run."""
        return BATCHES[: len(self.seconds)]

    @property
    def max_batch(self) -> int:
        """The largest of them."""
        return BATCHES[len(self.seconds) - 1]

    def seconds_for(self, rows: int) -> float:
        """How long a run of so many rows takes: between measured sizes a straight line, beyond them the fit."""
        index = (rows - 1).bit_length()
        if index >= len(self.seconds):
            return max(self.seconds[-1], self.fixed + self.per_row * rows)
        after = BATCHES[index]
        if rows == after:
            return self.seconds[index]
        before = BATCHES[index - 1]
        share = (rows - before) / (after - before)
        return self.seconds[index - 1] * (1.0 - share) + self.seconds[index] * share

    def largest_within(self, seconds: float) -> int:
        """The largest batch whose run ends within so many seconds; 1 when none does."""
        fitting = [batch for batch, each in zip(self.batches, self.seconds, strict=True) if each <= seconds]
        return fitting[-1] if fitting else 1

    def capacity(self, batch: int) -> float:
        """Rows per second of one worker that always runs batches of this size."""
        return batch / self.seconds_for(batch)


def _affine(seconds: tuple[float, ...]) -> tuple[float, float]:
    count = len(seconds)
    batches = BATCHES[:count]
    mean_rows = sum(batches) / count
    mean_seconds = sum(seconds) / count
    spread = sum((rows - mean_rows) ** 2 for rows in batches)
    if not spread:
        return 0.0, seconds[0]
    slope = (
        sum((rows - mean_rows) * (each - mean_seconds) for rows, each in zip(batches, seconds, strict=True)) / spread
    )
    slope = max(0.0, slope)
    return max(0.0, mean_seconds - slope * mean_rows), slope


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """Workers that take equally long for the same."""

    # Of the variants that may answer, the most accurate first; every kind has the same ones. The same tuple object as
    # long as nothing changed, so that schedulers may keep what they worked out from it.
    profiles: tuple[Profile, ...]
    busy: tuple[float, ...]  # seconds until each worker is free; 0 for those that are

    @property
    def idle(self) -> int:
        """How many of them are free."""
        return self.busy.count(0.0)


@dataclass(frozen=True, slots=True)
class View:
    """What is known when a worker is free."""

    kinds: tuple[WorkerKind, ...]  # all workers; where all are alike there is one kind
    objective: float  # seconds of delay that the endpoint aims at
    utility: Utility  # what an answer is worth
    count: int  # rows that wait, at least 1
    oldest: float  # age of the request that waited longest, seconds
    p90: float  # age that a tenth of the waiting requests exceed
    median: float  # age that half of them exceed
    rate: float  # arriving rows per second over the last 40 objectives or so
    recent_rate: float  # the same over the last 4

    @property
    def variants(self) -> tuple[Profile, ...]:
        """The variants that may answer, the most accurate first, as they run on workers of the first kind."""
        return self.kinds[0].profiles

    @property
    def workers(self) -> int:
        """How many there are."""
        return sum([len(kind.busy) for kind in self.kinds])

    def quickest_idle(self, variant: int) -> int:
        """The kind with a free worker that runs one row of a variant soonest; an index into :attr:`kinds`."""
        idle = [index for index, kind in enumerate(self.kinds) if kind.idle]
        return idle[0] if len(idle) == 1 else min(idle, key=lambda kind: self.kinds[kind].profiles[variant].seconds[0])


@dataclass(frozen=True, slots=True)
class Choice:
    """Run the oldest ``batch`` rows, or all there are if they are fewer, on a free worker."""

    variant: int  # index into the profiles of the worker's kind
    batch: int  # one of :data:`BATCHES`
    kind: int = 0  # of the worker: index into the view's kinds


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that ended."""

    variant: str  # name of the variant
    rows: int  # that it had
    delay: float  # from the arrival of the oldest of its requests, seconds


class Scheduler(Protocol):
    """Chooses what a free worker does. Deterministic; whatever it remembers it was told."""

    def decide(self, view: View) -> Choice | None:
        """What to run now, or None to wait for the next request or end of a run, or :data:`PATIENCE` objectives."""

    def ended(self, run: Ended) -> None:
        """A run came to its end."""


class ArrivalRate:
    """Arriving rows per second, the older the less they count.

    The exponentially decayed count over the decayed time since the first arrival, so that it is right from the start.

    Args:
        seconds: Time constant.
    """

    __slots__ = ("_at", "_began", "_count", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._count = 0.0
        self._at = 0.0
        self._began: float | None = None

    def add(self, now: float, rows: int = 1) -> None:
        """So many rows arrived at ``now``, seconds of a clock that never goes back."""
        if self._began is None:
            self._began = now - self._seconds / _START
        self._count = self._count * math.exp((self._at - now) / self._seconds) + rows
        self._at = now

    def at(self, now: float) -> float:
        """The rate as of ``now``; 0 before the first arrival."""
        if self._began is None:
            return 0.0
        seen = -math.expm1((self._began - now) / self._seconds)
        return self._count * math.exp((self._at - now) / self._seconds) / (self._seconds * seen)


# At the first arrival a rate counts as having been watched for this part (one in so many) of its time constant.
_START = 200.0

RATE_OBJECTIVES = 40.0
"""Time constant of :attr:`View.rate`, in objectives; 2 s for an objective of 50 ms."""

RECENT_OBJECTIVES = 4.0
"""Time constant of :attr:`View.recent_rate`, in objectives."""
