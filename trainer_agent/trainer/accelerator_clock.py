"""Clocks of accelerator time: how long an accelerator was at work for this process, in spans that the library marks.

A span is from one boundary of the script to the next: what is issued to the accelerator between
:meth:`AcceleratorClock.begin` and :meth:`AcceleratorClock.end`. Its accelerator time is known only when the accelerator
has done it, which may be several spans later, and nobody waits for that here.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

logger = logging.getLogger(__name__)

SPANS_IN_FLIGHT: Final = 32
"""Spans that are remembered until the accelerator has done them. A script that is further ahead than that is measured
in longer spans: the open one just goes on, and nothing is lost."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What a clock knows."""

    busy_seconds: float = 0.0  # accelerator time of all spans that are done, never falling
    spans: int = 0  # how many spans that are
    # Spans that have ended for the script but are not done on the accelerator, as far as the clock knows.
    pending: int = 0


class AcceleratorClock(Protocol):
    """Measures one accelerator. Nothing of it waits for the accelerator."""

    def begin(self) -> None:
        """What is issued from now on counts; no effect while a span is open."""

    def end(self) -> None:
        """What is issued from now on does not count; no effect while no span is open."""

    def read(self) -> ClockReading:
        """What is known now."""


class StepClock:
    """The time between boundaries itself: for scripts that compute on the CPU, where issuing is doing.

    Args:
        wall: Seconds that pass; any origin.
    """

    def __init__(self, wall: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._began: float | None = None
        self._busy_seconds, self._spans = 0.0, 0

    def begin(self) -> None:
        """See :class:`AcceleratorClock`."""
        if self._began is None:
            self._began = self._wall()

    def end(self) -> None:
        """See :class:`AcceleratorClock`."""
        if self._began is not None:
            self._busy_seconds += self._wall() - self._began
            self._spans += 1
            self._began = None

    def read(self) -> ClockReading:
        """See :class:`AcceleratorClock`; nothing is ever pending."""
        return ClockReading(self._busy_seconds, self._spans)


class CudaClock:
    """CUDA events around each span, on the stream that is current at its ends.

    The time between two events is what passed on the accelerator: its own work, its waiting for other processes that
    have a turn, and the moments in which it waited for the script inside of a span. Work on other streams counts as far
    as the current stream waits for it. An accelerator that the process has no memory on is left alone, since even an
    event would make a context there. One that fails is measured no more: the script hears of it from its own next call,
    and what ends the run, its last words to the agent included, must not fail for want of a figure.

    Args:
        index: The accelerator, as PyTorch numbers it in this process.
        cuda: What behaves like ``torch.cuda``; None for that itself, which the script has imported.
        spans_in_flight: See :data:`SPANS_IN_FLIGHT`.
    """

    def __init__(self, index: int, *, cuda: Any = None, spans_in_flight: int = SPANS_IN_FLIGHT) -> None:
        self._index, self._spans_in_flight = index, spans_in_flight
        self._cuda: Any = sys.modules["torch"].cuda if cuda is None else cuda
        self._in_use = self._has_failed = False
        self._began: Any = None
        self._in_flight: deque[tuple[Any, Any]] = deque()
        self._unused: list[Any] = []
        self._busy_seconds, self._spans = 0.0, 0

    def begin(self) -> None:
        """See :class:`AcceleratorClock`."""
        if self._began is None and self._is_in_use():
            with self._while_it_works():
                self._began = self._record()

    def end(self) -> None:
        """See :class:`AcceleratorClock`; a span stays open while too many are in flight."""
        if self._began is None:
            return
        self._collect()
        if self._began is not None and len(self._in_flight) < self._spans_in_flight:
            with self._while_it_works():
                self._in_flight.append((self._began, self._record()))
                self._began = None

    def read(self) -> ClockReading:
        """See :class:`AcceleratorClock`."""
        self._collect()
        return ClockReading(self._busy_seconds, self._spans, len(self._in_flight))

    def _is_in_use(self) -> bool:
        # To ask costs a tenth of a millisecond, so that an accelerator that is in use once is not asked about again.
        if not (self._in_use or self._has_failed):
            self._in_use = bool(self._cuda.is_initialized() and self._cuda.memory_reserved(self._index) > 0)
        return self._in_use

    def _record(self) -> Any:
        event = self._unused.pop() if self._unused else self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._index))
        return event

    def _collect(self) -> None:
        """Take in what the accelerator has done; a stream does things in order, and spans may begin and end on two."""
        with self._while_it_works():
            while self._in_flight and all(event.query() for event in self._in_flight[0]):
                began, ended = self._in_flight.popleft()
                self._busy_seconds += max(began.elapsed_time(ended), 0.0) / 1000.0
                self._spans += 1
                self._unused += [began, ended]

    @contextlib.contextmanager
    def _while_it_works(self) -> Iterator[None]:
        """Whatever CUDA says inside, such as that a kernel failed long ago, it is asked nothing from then on."""
        try:
            yield
        except RuntimeError as error:
            logger.warning("the time of accelerator %d is not measured any more: %s", self._index, error)
            self._in_use, self._has_failed = False, True
            self._began = None
            self._in_flight.clear()
