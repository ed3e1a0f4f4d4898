"""One run that is wanted, from the moment it was checked to its answer."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import onnxruntime as ort

from tiercel.core.errors import TiercelError
from tiercel.serving.explaining.feedback import answered
from tiercel.serving.tensors import Array

if TYPE_CHECKING:
    from tiercel.serving.accounting.accounts import Account
    from tiercel.serving.accounting.room import Room
    from tiercel.serving.accounting.waiting import Source
    from tiercel.serving.explaining.recent_requests import Answered, Trace
    from tiercel.serving.models.loaded_version import LoadedVersion
    from tiercel.serving.runtime.engine import Session

Outcome = list[Array] | TiercelError
"""The outputs in the order in which they were wanted, or why there are none."""

# A call goes ahead of those of the next priority that came up to this many seconds earlier, and no more: so priorities
# decide while calls wait for a moment, and nobody starves.
_SECONDS_PER_PRIORITY = 1.0
# Callers who say nothing can be overtaken by those who say 1, and let by those who say 3 and more.
_DEFAULT_PRIORITY = 2
_LEAST_URGENT = 10


class Owner(Protocol):
    """Whoever runs a call that was queued."""

    def cancelled(self, call: Call) -> None:
        """A call that waits or runs was cancelled."""


class Call(abc.ABC):
    """What is to be run; whoever submits one says in a subclass what becomes of its answer.

    Args:
        loaded: The version to run.
        session: Its session.
        feeds: Inputs by name, checked.
        outputs: Names of the outputs to compute.
        key: Calls of one version run together if their keys are equal; None for a call that runs alone.
        max_rows: Rows of a batch of this version at most.
        rows: Rows of every input; 1 for a call that runs alone.
        elements: Elements of all inputs together.
        size: Bytes of all inputs together.
        begin: When it was submitted, seconds of ``time.perf_counter``.
        deadline: When its answer is of no use any more.
        priority: 1 is first; 0 is 2, which is what callers get who say nothing.

    Attributes:
        account: Whom its run is charged to.
        behind: Seconds by which it stands behind calls of the default priority that come with it.
        rank: The call of the lowest rank runs first.
        ended: Whether it was answered, or nobody wants its answer any more.
        room: What it takes room of while it waits or runs.
        run: The run that it is part of, if any.
        owner: Whoever has to know when it is cancelled, if anybody.
        trace: What is noted of it, so that it can be explained; None for nothing.
    """

    __slots__ = (
        "account", "begin", "behind", "deadline", "elements", "ended", "feeds", "key", "loaded", "max_rows", "outputs",
        "owner", "rank", "room", "rows", "run", "session", "size", "trace",
    )  # fmt: skip

    def __init__(
        self,
        loaded: LoadedVersion,
        session: Session,
        feeds: Mapping[str, Array],
        outputs: tuple[str, ...],
        key: Any,
        max_rows: int,
        rows: int,
        elements: int,
        size: int,
        begin: float,
        deadline: float,
        priority: int = 0,
    ) -> None:
        self.account: Account = loaded.account
        self.loaded = loaded
        self.session = session
        self.feeds = feeds
        self.outputs = outputs
        self.key = key
        self.max_rows = max_rows
        self.rows = rows
        self.elements = elements
        self.size = size
        self.begin = begin
        self.deadline = deadline
        self.behind = 0.0 if priority == 0 else seconds_behind(priority)
        self.rank = begin + self.behind
        self.ended = False
        self.room: Room | None = None
        self.run: Run | None = None
        self.owner: Owner | None = None
        self.trace: Trace | None = None

    # Whether its answer is one that is counted as a request's.
    is_request: ClassVar[bool] = True

    @property
    def source(self) -> Source:
        """Where it waits, if it does."""
        return self.account.waiting

    def compute(self, session: Session, options: Any) -> list[Array]:
        """Run by itself, in a worker's thread; raises what :meth:`.Session.run` raises."""
        return session.run(self.outputs, self.feeds, options)

    def cancel(self) -> None:
        """Nobody wants the answer any more; called on the event loop. Neither answer nor failure will come."""
        if not self.ended:
            self.ended = True
            if self.owner is not None:
                self.owner.cancelled(self)

    def let_go(self) -> None:
        """It was not run, and will not be: whatever it would have run on is free to go."""
        self.loaded.release()

    @abc.abstractmethod
    def answer(self, outputs: list[Array], now: float) -> None:
        """It was run; called at most once, on the event loop, and never after :meth:`fail`.

        Args:
            outputs: In the order in which they were wanted; may be views of a whole batch's.
            now: The clock.
        """

    @abc.abstractmethod
    def fail(self, error: TiercelError, now: float) -> None:
        """It will not be answered; called at most once, on the event loop, and never after :meth:`answer`."""


class RequestCall(Call):
    """A call that is a caller's request."""

    __slots__ = ("arrived", "on_answer")

    arrived: float  # when its first byte was read
    on_answer: Callable[[Any], None]  # called once with what came of it

    def answer(self, outputs: list[Array], now: float) -> None:
        """See :meth:`Call.answer`."""
        self._send(self.on_answer, outputs, outputs)

    @property
    def variant(self) -> str:
        """Who answers, of an endpoint with variants; else empty."""
        return ""

    def _send(self, on_answer: Callable[[Any], None], answer: object, outputs: list[Array]) -> None:
        """Hand the answer over, and count it."""
        trace = self.trace
        began = 0.0 if trace is None else time.perf_counter()
        on_answer(answer)
        now = time.perf_counter()
        self.account.delays.answered(now - self.arrived, now)
        if trace is not None:
            self._trace(trace, began, now, answer=answered(outputs[0]) if outputs else None)

    def _trace(self, trace: Trace, encode: float, end: float, error: str = "", answer: Answered | None = None) -> None:
        version, variant = self.loaded.version_text, self.variant
        trace.end(self.account.name, version, variant, self.arrived, self.begin, self.rows, encode, end, error, answer)

    def fail(self, error: TiercelError, now: float) -> None:
        """See :meth:`Call.fail`."""
        self.loaded.statistics.failed(error, now, now - self.begin)
        self.account.delays.failed(now)
        began = time.perf_counter()
        self.on_answer(error)
        if self.trace is not None:
            self._trace(self.trace, began, time.perf_counter(), error=error.message)

    def cancel(self) -> None:
        """See :meth:`Call.cancel`."""
        if not self.ended:
            now = time.perf_counter()
            self.loaded.statistics.canceled(now, now - self.begin)
            self.account.delays.failed(now)
            if self.trace is not None:
                self._trace(self.trace, now, now, error="the caller went away before it was answered")
        super().cancel()


class Run:
    """Calls that run together on a worker.

    Args:
        source: Where they waited.
        calls: At least one, all of one version.
        expected: CPU seconds that it is expected to take.
        rows: Rows of all calls.

    Attributes:
        live: How many of the calls are wanted still.
        options: ``ort.RunOptions``, by which it can be broken off.
    """

    __slots__ = ("calls", "expected", "live", "options", "rows", "source")

    def __init__(self, source: Source, calls: Sequence[Any], expected: float, rows: int) -> None:
        self.source = source
        self.calls = calls
        self.expected = expected
        self.rows = rows
        self.live = len(calls)
        self.options = ort.RunOptions()
        self.options.log_severity_level = 4

    def lose(self) -> None:
        """One of the calls is not wanted any more; when none is, the run is broken off between two operators."""
        self.live -= 1
        if not self.live:
            self.options.terminate = True


def seconds_behind(priority: int) -> float:
    """Seconds by which a call of this priority stands behind one of the default priority that came with it."""
    return (min(max(priority, 1), _LEAST_URGENT) - _DEFAULT_PRIORITY) * _SECONDS_PER_PRIORITY
