"""Holds a run to a fraction of accelerator time, at its boundaries. Accounting, not isolation: the script has to call.

The accelerator works while the script is ahead, so what a step costs is known late. Nobody waits for that: steps that
are not measured yet are charged by estimate, and by what they really cost once that is known. Only a script that is
paced and has got further ahead than :data:`STEPS_AHEAD` waits for the accelerator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from tiercel.trainer_agent.trainer.accelerator_clock import AcceleratorClock, ClockReading
from tiercel.trainer_agent.trainer.pacing import TokenBucket

STEPS_AHEAD: Final = 4
"""Spans in flight beyond which a paced script waits: an estimate that was wrong must not run away."""
POLL_SECONDS: Final = 0.002
"""How long it then waits before it looks again."""
_SHORTEST_REST_SECONDS: Final = 1e-4  # less is owed until it is more: no timer is finer
_PATIENCE: Final = 0.25  # part of a span's cost for which an estimate is trusted before the clock is read again
_NEWS: Final = 0.3  # weight of the last reading in the estimate of a span's cost


class AcceleratorPacer:
    """Paces by one clock for each accelerator; the busiest one counts."""

    def __init__(self, clocks: Sequence[AcceleratorClock], *, wall: Callable[[], float] = time.monotonic) -> None:
        self._meters = [_Meter(clock, wall) for clock in clocks]
        self._open = False

    @property
    def is_open(self) -> bool:
        """Whether a span is open."""
        return self._open

    def begin(self) -> None:
        """What is issued from now on counts."""
        self._open = True
        for meter in self._meters:
            meter.clock.begin()

    def end(self) -> None:
        """What is issued from now on does not count."""
        self._open = False
        for meter in self._meters:
            meter.clock.end()

    def limit(self, fraction: float) -> None:
        """Let the run use that fraction of each accelerator's time, from this moment on; 0, or less, means no limit."""
        for meter in self._meters:
            meter.limit(fraction)

    def delay_seconds(self) -> float:
        """How long the script should issue nothing now; 0 when it is within its fraction. To be asked again then."""
        delay = max((meter.delay_seconds() for meter in self._meters), default=0.0)
        return delay if delay >= _SHORTEST_REST_SECONDS else 0.0

    def reading(self) -> ClockReading:
        """What the clock of the busiest accelerator knows."""
        readings = (meter.clock.read() for meter in self._meters)
        return max(readings, key=lambda each: each.busy_seconds, default=ClockReading())


class _Meter:
    """One accelerator: its clock, and what is owed to it."""

    def __init__(self, clock: AcceleratorClock, wall: Callable[[], float]) -> None:
        self.clock = clock
        self._wall = wall
        self._bucket = TokenBucket()
        self._last_wall, self._last = wall(), ClockReading()
        self._span_seconds: float | None = None

    def limit(self, fraction: float) -> None:
        self._ingest()
        self._bucket.limit(fraction)

    def delay_seconds(self) -> float:
        self._ingest()
        if not (self._bucket.rate and self._last.pending):
            return self._bucket.delay_seconds()
        if self._span_seconds is None or self._last.pending > STEPS_AHEAD:
            return max(POLL_SECONDS, self._bucket.delay_seconds())
        delay = self._bucket.delay_seconds(self._last.pending * self._span_seconds)
        return min(delay, max(POLL_SECONDS, _PATIENCE * self._span_seconds))  # what it really cost is known by and by

    def _ingest(self) -> None:
        wall, reading = self._wall(), self.clock.read()
        busy, spans = reading.busy_seconds - self._last.busy_seconds, reading.spans - self._last.spans
        self._bucket.turn(wall - self._last_wall, busy)
        if spans:
            news = busy / spans
            before = news if self._span_seconds is None else self._span_seconds
            self._span_seconds = before + _NEWS * (news - before)
        self._last_wall, self._last = wall, reading
