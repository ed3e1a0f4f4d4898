"""How long a device was at work for a training, step by step; apart from the clocks that the pacer goes by.

The pacer measures spans that may hold several steps, and reads what is done; here every step has events of its own,
and what counts is when its last work was done on the device, not when the script came to see it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from benchmarks.gpu_check.done import Done

STEPS_IN_FLIGHT = 16
"""A script that is further ahead waits, as one that prints its loss now and then would."""


class StepTimer(Protocol):
    """Measures the steps of one training."""

    def begin(self) -> None:
        """A step is about to be issued."""

    def end(self) -> None:
        """It was issued."""

    def done(self) -> Done:
        """What is done by now."""


class WallTimer:
    """Of training on the CPU, where what was issued is done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._done = Done(clock())
        self._began = 0.0

    def begin(self) -> None:
        """See :class:`StepTimer`."""
        self._began = self._clock()

    def end(self) -> None:
        """See :class:`StepTimer`."""
        now = self._clock()
        self._done = Done(now, self._done.busy_seconds + now - self._began, self._done.steps + 1)

    def done(self) -> Done:
        """See :class:`StepTimer`."""
        return self._done


class EventTimer:
    """CUDA events around every step, placed on the machine's clock by one that was waited for at first.

    Args:
        device: Where the steps are issued, on the stream that is current now.
        cuda: ``torch.cuda``, or what behaves like it.
        clock: Seconds of the machine's clock.
    """

    def __init__(
        self, device: torch.device, *, cuda: Any = torch.cuda, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cuda = cuda
        self._stream = cuda.current_stream(device)
        self._first = self._event()
        self._first.synchronize()
        self._done = Done(clock())
        self._first_at = self._done.at
        self._began: Any = None
        self._in_flight: deque[tuple[Any, Any]] = deque()

    def begin(self) -> None:
        """See :class:`StepTimer`."""
        self._began = self._event()

    def end(self) -> None:
        """See :class:`StepTimer`; waits for the oldest step when there are too many."""
        self._in_flight.append((self._began, self._event()))
        if len(self._in_flight) > STEPS_IN_FLIGHT:
            self._in_flight[0][1].synchronize()

    def done(self) -> Done:
        """See :class:`StepTimer`."""
        while self._in_flight and self._in_flight[0][1].query():
            began, ended = self._in_flight.popleft()
            busy = self._done.busy_seconds + began.elapsed_time(ended) / 1000.0
            at = self._first_at + self._first.elapsed_time(ended) / 1000.0
            self._done = Done(at, busy, self._done.steps + 1)
        return self._done

    def _event(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event


def timer_for(device: torch.device) -> StepTimer:
    """The timer that fits a device."""
    return EventTimer(device) if device.type == "cuda" else WallTimer()
