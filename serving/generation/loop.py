"""Generates the rows of one version: a step for all of them, then whoever waits comes in, then the next step.

A step is one call of the dispatcher's, so that a version's steps and other models' requests have their turns by weight,
caps hold, and CPU is charged. Between two steps rows come and go (continuous batching; Yu et al., Orca, OSDI 2022).
Everything but the steps themselves happens on the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tiercel.core.errors import CapacityExceededError, DeadlineExceededError, InvalidRequestError, TiercelError
from tiercel.serving.accounting.room import Room
from tiercel.serving.accounting.waiting import Source
from tiercel.serving.dispatch.call import Call
from tiercel.serving.generation.batch import Batch
from tiercel.serving.generation.request import GenerationLimits
from tiercel.serving.generation.room import CacheRoom
from tiercel.serving.generation.row import STOPPED, Row, Stepped
from tiercel.serving.generation.statistics import GenerationStatistics
from tiercel.serving.runtime.decoder import Decoder
from tiercel.serving.tensors import Array

if TYPE_CHECKING:
    from tiercel.serving.dispatch.dispatcher import Dispatcher
    from tiercel.serving.models.loaded_version import LoadedVersion
    from tiercel.serving.runtime.engine import Session

_logger = logging.getLogger(__name__)

# More than any model may run on the event loop: a step never does.
_ELEMENTS: Final = 2**62
_FIRST: Final = 1


class DecodeLoop:
    """See the module.

    Args:
        loaded: The version.
        decoder: What it takes and gives.
        dispatcher: Runs steps.
        limits: How much may be generated.
        room: For keys and values, shared with other versions.
        statistics: Counts what is generated.
        on_idle: Called when nothing is left to do.
    """

    def __init__(
        self,
        loaded: LoadedVersion,
        decoder: Decoder,
        dispatcher: Dispatcher,
        limits: GenerationLimits,
        room: CacheRoom,
        statistics: GenerationStatistics,
        on_idle: Callable[[], None],
    ) -> None:
        self.loaded = loaded
        self.decoder = decoder
        self.source = _OneStep()
        self._dispatcher = dispatcher
        self.limits = limits
        self._room = room
        self._statistics = statistics
        self._on_idle = on_idle
        self._waiting: deque[Row] = deque()
        self._begun: list[Row] = []
        self._batch = Batch(decoder)
        self._step: _Step | None = None

    @property
    def waiting(self) -> int:
        """Rows that have not begun."""
        return sum(not row.ended for row in self._waiting)

    @property
    def begun(self) -> int:
        """Rows that are being generated."""
        return sum(not row.ended for row in self._begun)

    def add(self, row: Row, timeout: float) -> None:
        """Let a row wait for its turn, which it gets within ``timeout`` seconds or fails.

        Raises:
            CapacityExceededError: As many wait as may.
        """
        # Also those who come in with the next step wait, for a moment.
        if self.begun + self.waiting >= self.limits.rows + self.limits.waiting:
            raise CapacityExceededError(
                f"{self.begun + self.waiting} answers of '{self.loaded.model}' are being generated or wait for it, "
                "as many as may; try again in a moment"
            )
        self.loaded.acquire()
        self.loaded.account.requests += 1
        row.timer = asyncio.get_running_loop().call_later(timeout, self._time_is_up, row, timeout)
        self._waiting.append(row)
        self.look()

    def fail(self, row: Row, error: TiercelError) -> None:
        """A row gets no answer, or no more of it."""
        self._fail(row, error)
        self.look()

    def cancel(self, row: Row) -> None:
        """Nobody wants a row any more; its place is free for the next step."""
        if not row.ended:
            now = time.perf_counter()
            self.loaded.statistics.canceled(now, now - row.arrived)
            if not row.tokens:
                self.loaded.account.delays.failed(now)
            self._end(row, now, "the caller went away")
            self.look()

    def break_off(self, error: TiercelError) -> None:
        """Fail all rows."""
        for row in (*self._waiting, *self._begun):
            self._fail(row, error)
        self.look()

    def look(self) -> None:
        """Begin the next step, if there is something to do and none runs."""
        if self._step is not None:
            if not all(row.ended for row in self._begun):
                return
            self._step.cancel()  # nobody waits for it; its thread may be busy with the batch for a moment
            self._step, self._batch = None, Batch(self.decoder)
        self._waiting = deque(row for row in self._waiting if not row.ended)
        self._begun = [row for row in self._begun if not row.ended]
        new = self._let_in()
        if self._begun:
            self._step = _Step(self, self._batch, new)
            self._dispatcher.submit(self._step)
            return
        self._batch = Batch(self.decoder)
        if not self._waiting:
            self._on_idle()

    def _let_in(self) -> list[Row]:
        self._room.hold(self, self._bytes(self._begun))
        new: list[Row] = []
        known = (row for row in self._waiting if len(row.prompt))
        for row in list(itertools.islice(known, self.limits.rows - len(self._begun))):
            if not self._room.hold(self, self._bytes([*self._begun, row])):
                break
            self._waiting.remove(row)
            self._begun.append(row)
            new.append(row)
            if row.notes is not None:
                row.notes.began = time.perf_counter()
        return new

    def _bytes(self, rows: list[Row]) -> int:
        """Bytes that keys and values of these rows come to take: each is as long as the longest."""
        return len(rows) * max((row.reserved for row in rows), default=0) * self.decoder.token_bytes

    def stepped(self, stepped: Stepped, seconds: float) -> None:
        """A step is done."""
        self._step = None
        now = time.perf_counter()
        self.loaded.statistics.executed(max(1, len(stepped)), seconds)
        tell: list[Callable[[], None]] = []
        for row, outcome in stepped:
            if row.ended:
                continue
            if isinstance(outcome, TiercelError):
                tell.append(partial(self._fail, row, outcome))
                continue
            reason, tokens = row.take(outcome, now, len(stepped)), row.tokens
            if tokens == 1 or (reason and not tokens):
                self._statistics.begun(len(row.prompt), now - row.arrived, now)
                self.loaded.account.delays.answered(now - row.arrived, now)
            if reason:
                self._end(row, now)
                self.loaded.statistics.succeeded(now, now - row.arrived, row.run_seconds)
            if reason != STOPPED:
                self._statistics.tokens += 1
                tell.append(partial(row.listener.token, outcome))
            if reason:
                tell.append(partial(row.listener.finished, reason))
        self.look()
        self._dispatcher.give_turns()  # so that the next step runs while this one's answers are written
        for each in tell:
            try:
                each()
            except Exception:  # the border: one caller's defect must not take the answers from the others
                _logger.exception("A token could not be handed over")

    def failed(self, error: TiercelError) -> None:
        """A step failed as a whole, or is given up: its thread may still be busy with the batch, and keeps it."""
        self._step = None
        self._batch = Batch(self.decoder)
        for row in tuple(self._begun):
            self._fail(row, error)
        self.look()

    def _time_is_up(self, row: Row, seconds: float) -> None:
        self.fail(row, DeadlineExceededError(f"the answer was not complete within {seconds:.6g} seconds"))

    def _fail(self, row: Row, error: TiercelError) -> None:
        if row.ended:
            return
        now = time.perf_counter()
        self.loaded.statistics.failed(error, now, now - row.arrived)
        if not row.tokens and not isinstance(error, InvalidRequestError):
            self.loaded.account.delays.failed(now)
        self._end(row, now, error.message)
        row.listener.failed(error)

    def _end(self, row: Row, now: float, error: str = "") -> None:
        row.ended = True
        if row.notes is not None:
            row.notes.end(row.tokens, now, error)
        if row.timer is not None:
            row.timer.cancel()
        if row.tokenizing is not None:
            row.tokenizing.cancel()
        self.loaded.release()


class _OneStep(Source):
    """The step that waits for its turn, if one does."""

    __slots__ = ("_steps", "room")

    def __init__(self) -> None:
        self._steps: list[Any] = []
        # What is generated has limits of its own. Steps that were broken off, which are no more than there are
        # workers, must not keep the next one out.
        self.room = Room(_ELEMENTS, _ELEMENTS)

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, call: Any) -> None:
        """See :meth:`Source.add`."""
        self._steps.append(call)

    def discard(self, call: Any) -> None:
        """See :meth:`Source.discard`."""
        if call in self._steps:
            self._steps.remove(call)

    def take(self, now: float, *, idle: int = 1, workers: int = 1, queue_delay: float = 0.0) -> list[Any]:
        """See :meth:`Source.take`."""
        del now, idle, workers, queue_delay
        steps, self._steps = self._steps, []
        return steps

    def seconds_to_next(self, now: float, queue_delay: float) -> float:
        """See :meth:`Source.seconds_to_next`."""
        del now, queue_delay
        return 0.0


class _Step(Call):
    """One step of a batch."""

    __slots__ = ("_batch", "_loop", "_new", "_stepped")

    is_request = False

    def __init__(self, loop: DecodeLoop, batch: Batch, new: Iterable[Row]) -> None:
        loaded, now = loop.loaded, time.perf_counter()
        feeds: Mapping[str, Array] = {}
        rows = loop.begun
        deadline = now + loop.limits.timeout
        super().__init__(loaded, loaded.session, feeds, (), None, rows, rows, _ELEMENTS, 0, now, deadline, _FIRST)
        self._loop, self._batch, self._new = loop, batch, list(new)
        self._stepped: Stepped = []

    @property
    def source(self) -> Source:
        """See :meth:`Call.source`."""
        return self._loop.source

    def compute(self, session: Session, options: Any) -> list[Array]:
        """See :meth:`Call.compute`; what comes of it goes to the loop, not to a caller."""
        self._stepped = self._batch.step(partial(session.run_unobserved, options=options), self._new)
        return []

    def answer(self, outputs: list[Array], now: float) -> None:
        """See :meth:`Call.answer`."""
        del outputs
        self._loop.stepped(self._stepped, now - self.begin)

    def fail(self, error: TiercelError, now: float) -> None:
        """See :meth:`Call.fail`."""
        del now
        self._loop.failed(error)
