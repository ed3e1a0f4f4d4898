"""How long answers took: a histogram of bounded size for each model, over sliding windows and since the server began.

A delay counts from the arrival of a request in this process to the hand-over of its answer to the transport. Not in it:
the time that bytes wait in the kernel before the event loop reads them, and the way of the answer after the hand-over.
A server that gets too little CPU therefore reports less than callers see; :mod:`.loop_lag` measures by how much its
event loop comes late.

Buckets are spaced evenly on a logarithm, so that a quantile is off by a bounded fraction, whatever the scale: each is
2^(1/8) wide and is told as its geometric middle, so by at most 2^(1/16) - 1 = 4.5 %. A count costs one logarithm and
one increment. Time is an argument everywhere: seconds of any steady clock.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

_PER_OCTAVE: Final = 8
_LEAST: Final = 2.0**-20
_OCTAVES: Final = 28
BUCKETS: Final = _PER_OCTAVE * _OCTAVES
"""How many there are."""
_LAST: Final = BUCKETS - 1
_SCALE: Final = 1.0 / _LEAST
_MIDDLES: Final = _LEAST * 2.0 ** ((np.arange(BUCKETS) + 0.5) / _PER_OCTAVE)
_EMPTY: Final = bytes(4 * BUCKETS)
_QUANTILES: Final = np.array([0.5, 0.95, 0.99])

SLOT_SECONDS: Final = 2.0
"""Windows slide in steps of this."""
WINDOWS: Final = (10.0, 60.0)
"""Seconds that windows reach back."""
HISTOGRAM_BOUNDS: Final = tuple(2.0**power for power in range(-15, 6))
"""Bounds in seconds for :meth:`Delays.cumulative`, 31 µs to 32 s; each is the bound of a bucket."""
_KEPT: Final = tuple(int(seconds / SLOT_SECONDS) - 1 for seconds in WINDOWS)

_log2 = math.log2


@dataclass(frozen=True, slots=True)
class Window:
    """What happened in the last few seconds."""

    seconds: float  # how far it reaches back; less while the server, or the model, is younger
    answers: int = 0  # requests that were answered with a result
    failures: int = 0  # requests that were refused for want of room, timed out, or failed
    # Fraction of both that was answered within the objective; None without an objective, or without requests.
    in_objective: float | None = None
    p50: float | None = None  # median delay of the answers, seconds, off by 4.5 % at most; None without answers
    p95: float | None = None  # 95th percentile
    p99: float | None = None  # 99th percentile

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answers / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """For whoever watches the server."""
        return {
            "seconds": self.seconds,
            "answers": self.answers,
            "failures": self.failures,
            "rate": self.rate,
            "in_objective": self.in_objective,
            "p50": self.p50,
            "p95": self.p95,
            "p99": self.p99,
        }


@dataclass(frozen=True, slots=True)
class Slot:
    """A few seconds that are over."""

    counts: Counts  # answers, by bucket of their delay
    on_time: int  # those of them that were within the objective
    failures: int  # requests that were not answered with a result

    def __add__(self, other: Slot) -> Slot:
        return Slot(self.counts + other.counts, self.on_time + other.on_time, self.failures + other.failures)


@dataclass(frozen=True, slots=True)
class History:
    """What windows are made of, for a process that goes on where another ends; their clock must be the same."""

    began: float  # when counting began, seconds of the clock
    ends: float  # when the slot ends that is being filled
    touched: float  # when something was last counted
    slots: tuple[Slot | None, ...]  # those before that one, the oldest first; None for one in which nothing happened


def _judged(slot: Slot, bound: float) -> Slot:
    """The slot with another objective; answers in the objective's own bucket count as within it."""
    if bound <= 0:
        return Slot(slot.counts, 0, slot.failures)
    least_bounds = _MIDDLES * 2.0 ** (-0.5 / _PER_OCTAVE)
    within = int(slot.counts[least_bounds < bound].sum())
    return Slot(slot.counts, within, slot.failures)


class _Total:
    """What a window's finished slots add up to."""

    __slots__ = ("counts", "failures", "on_time")

    def __init__(self) -> None:
        self.counts: Counts = np.zeros(BUCKETS, np.int64)
        self.on_time = 0
        self.failures = 0

    def add(self, slot: Slot) -> None:
        self.counts += slot.counts
        self.on_time += slot.on_time
        self.failures += slot.failures

    def remove(self, slot: Slot) -> None:
        self.counts -= slot.counts
        self.on_time -= slot.on_time
        self.failures -= slot.failures


class Delays:
    """Delays of one model's answers; used on one thread only.

    At most 30 slots of 900 bytes are kept, and none of seconds in which nothing happened.

    Attributes:
        answers: Requests since the beginning that were answered with a result.
        seconds: Their delays, added up.
        on_time: Those that were answered within the objective; 0 while there is none.
        failures: Requests since the beginning that were refused for want of room, timed out, or failed.
        touched: When something was last counted.
    """

    __slots__ = (
        "_began",
        "_bound",
        "_counts",
        "_ends",
        "_failures_before",
        "_on_time_before",
        "_past",
        "_slots",
        "_totals",
        "answers",
        "failures",
        "on_time",
        "seconds",
        "touched",
    )

    def __init__(self, now: float = 0.0) -> None:
        self.answers = 0
        self.seconds = 0.0
        self.on_time = 0
        self.failures = 0
        self.touched = -math.inf
        self._bound = -math.inf
        self._began = now
        self._ends = now + SLOT_SECONDS
        self._counts = array("I", _EMPTY)
        self._on_time_before = 0
        self._failures_before = 0
        # None for a slot in which nothing happened.
        self._slots: deque[Slot | None] = deque(maxlen=max(_KEPT))
        self._totals = tuple(_Total() for _ in WINDOWS)
        self._past: Counts = np.zeros(BUCKETS, np.int64)

    @property
    def objective(self) -> float | None:
        """Seconds that an answer may take, or None."""
        return self._bound if self._bound > 0 else None

    def judge_by(self, objective: float | None) -> None:
        """Answers may take so many seconds from now on; windows are judged anew, to the width of a bucket."""
        if objective == self.objective:
            return
        self._bound = -math.inf if objective is None else objective
        slots = tuple(None if slot is None else _judged(slot, self._bound) for slot in self._slots)
        current = _judged(self._current(), self._bound)
        self.on_time = self._on_time_before + current.on_time
        self._slots.clear()
        self._totals = tuple(_Total() for _ in WINDOWS)
        for slot in slots:
            self._push(slot)

    def answered(self, delay: float, now: float) -> None:
        """Count an answer that took ``delay`` seconds."""
        if now >= self._ends:
            self._turn(now)
        index = int(_log2(delay * _SCALE) * _PER_OCTAVE) if delay > _LEAST else 0
        self._counts[index if index < BUCKETS else _LAST] += 1
        self.answers += 1
        self.seconds += delay
        self.touched = now
        if delay <= self._bound:
            self.on_time += 1

    def failed(self, now: float) -> None:
        """Count a request that was not answered with a result; it is not within the objective."""
        if now >= self._ends:
            self._turn(now)
        self.failures += 1
        self.touched = now

    def windows(self, now: float) -> list[Window]:
        """The last few seconds, one for each of :data:`WINDOWS`; costs a few microseconds each."""
        if now >= self._ends:
            self._turn(now)
        begun = now - (self._ends - SLOT_SECONDS)
        reaches = [min(kept * SLOT_SECONDS + begun, now - self._began) for kept in _KEPT]
        if self.touched < now - WINDOWS[-1]:  # most models, most of the time
            return [Window(seconds) for seconds in reaches]
        current = self._current()
        return [self._window(total, current, seconds) for total, seconds in zip(self._totals, reaches, strict=True)]

    def history(self, now: float) -> History:
        """What windows are made of; what was counted in the slot that is being filled counts with the one before."""
        if now >= self._ends:
            self._turn(now)
        slots = list(self._slots)
        if self.touched >= self._ends - SLOT_SECONDS:
            before = slots.pop() if slots else None
            slots.append(self._current() if before is None else before + self._current())
        return History(self._began, self._ends, self.touched, tuple(slots))

    def continue_from(self, history: History) -> None:
        """Windows reach back into what another process counted; before anything was counted here."""
        self._began, self._ends, self.touched = history.began, history.ends, history.touched
        for slot in history.slots:
            self._push(slot)

    def cumulative(self, bounds: Sequence[float]) -> tuple[list[int], int, float]:
        """Since the beginning, as a Prometheus histogram has it.

        Args:
            bounds: Upper bounds in seconds, rising; from :data:`HISTOGRAM_BOUNDS`, or counts are off by a bucket.

        Returns:
            How many answers took at most each bound, how many there were, and the sum of their delays in seconds.
        """
        counts = self._past + self._current().counts
        until = np.concatenate(([0], np.cumsum(counts)))
        found = [round(_log2(bound * _SCALE) * _PER_OCTAVE) for bound in bounds]
        return [int(until[min(max(index, 0), BUCKETS)]) for index in found], self.answers, self.seconds

    def _window(self, total: _Total, current: Slot, seconds: float) -> Window:
        counts = total.counts + current.counts
        until = np.cumsum(counts)
        answers, failures = int(until[-1]), total.failures + current.failures
        in_objective = None
        if self._bound > 0 and answers + failures:
            in_objective = (total.on_time + current.on_time) / (answers + failures)
        if not answers:
            return Window(seconds, 0, failures, in_objective)
        # The smallest delay that at least this part of the answers did not exceed.
        p50, p95, p99 = _MIDDLES[np.searchsorted(until, np.ceil(_QUANTILES * answers))].tolist()
        return Window(seconds, answers, failures, in_objective, p50, p95, p99)

    def _current(self) -> Slot:
        counts = np.frombuffer(self._counts, np.uint32).astype(np.int64)
        return Slot(counts, self.on_time - self._on_time_before, self.failures - self._failures_before)

    def _turn(self, now: float) -> None:
        """Begin another slot, and as many in between as went by without anybody looking."""
        slot: Slot | None = None
        if self.touched >= self._ends - SLOT_SECONDS:
            slot = self._current()
            self._past += slot.counts
            self._counts = array("I", _EMPTY)
            self._on_time_before, self._failures_before = self.on_time, self.failures
        over = 1 + int((now - self._ends) / SLOT_SECONDS)
        self._ends += over * SLOT_SECONDS
        self._push(slot)
        for _ in range(min(over - 1, max(_KEPT))):
            self._push(None)

    def _push(self, slot: Slot | None) -> None:
        for total, kept in zip(self._totals, _KEPT, strict=True):
            if slot is not None:
                total.add(slot)
            if len(self._slots) >= kept and (gone := self._slots[-kept]) is not None:
                total.remove(gone)
        self._slots.append(slot)
