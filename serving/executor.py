"""Runs models: on the event loop when that is cheaper, else in a small pool of threads behind a bounded queue.

This is the seam for batching: whoever implements :class:`Executor` may gather calls before it runs them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import onnxruntime as ort

from tiercel.serving.engine import Session
from tiercel.serving.errors import DeadlineExceededError, OverloadedError, ServingError
from tiercel.serving.tensors import Array

Answered = Callable[[list[Array] | ServingError, float], None]


@dataclass(slots=True)
class Call:
    """One run that is wanted.

    Attributes:
        session: The model.
        feeds: Inputs by name, checked.
        outputs: Names of the outputs to compute.
        elements: Elements of all inputs together.
        size: Bytes of all inputs together.
        timeout: Seconds from now in which the answer is of use.
        on_answer: Called once, on the event loop, with the outputs or an error and the seconds the model ran.
        on_end: Called once, on the event loop, when the session is not in use any more; later than the answer after
            a timeout.
    """

    session: Session
    feeds: Mapping[str, Array]
    outputs: Sequence[str]
    elements: int
    size: int
    timeout: float
    on_answer: Answered
    on_end: Callable[[], None]


class Executor(Protocol):
    """Runs calls."""

    def submit(self, call: Call) -> None:
        """Run it now or soon; called on the event loop.

        Raises:
            OverloadedError: Too much is waiting; the call's functions will not be called.
        """


def _run(call: Call, options: ort.RunOptions | None) -> tuple[list[Array] | ServingError, float]:
    begin = time.perf_counter()
    try:
        result: list[Array] | ServingError = call.session.run(call.outputs, call.feeds, options)
    except ServingError as error:
        result = error
    return result, time.perf_counter() - begin


class ThreadExecutor:
    """Runs short calls inline and others in threads.

    Args:
        threads: Calls that run at the same time.
        max_pending: Calls that may wait or run in threads.
        max_pending_bytes: Input bytes of those calls together; one call is always let in.
    """

    def __init__(self, threads: int, max_pending: int, max_pending_bytes: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "inference")
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._pending = 0
        self._pending_bytes = 0
        self._calls: set[_ThreadedCall] = set()

    def close(self) -> None:
        """Break off what runs or waits, and let the threads go."""
        for call in tuple(self._calls):
            call.expire()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, call: Call) -> None:
        """See :meth:`Executor.submit`."""
        if call.elements <= call.session.inline_elements:
            result, seconds = _run(call, None)
            call.on_end()
            call.on_answer(result, seconds)
            return
        if self._pending >= self._max_pending or (
            self._pending and self._pending_bytes + call.size > self._max_pending_bytes
        ):
            raise OverloadedError(f"{self._pending} requests are waiting already; try again in a moment")
        self._pending += 1
        self._pending_bytes += call.size
        self._calls.add(_ThreadedCall(call, self._pool, self._ended))

    def _ended(self, ended: _ThreadedCall) -> None:
        self._calls.discard(ended)
        self._pending -= 1
        self._pending_bytes -= ended.call.size


class _ThreadedCall:
    """A call on its way through the pool: answers it once, whichever comes first, the result or the timeout."""

    __slots__ = ("_answered", "_future", "_loop", "_on_end", "_options", "_timer", "call")

    def __init__(self, call: Call, pool: ThreadPoolExecutor, on_end: Callable[[_ThreadedCall], None]) -> None:
        self.call = call
        self._on_end = on_end
        self._answered = False
        self._options = ort.RunOptions()
        self._options.log_severity_level = 4
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(call.timeout, self.expire)
        self._future = pool.submit(_run, call, self._options)
        self._future.add_done_callback(self._hand_over)

    def _hand_over(self, future: Future[tuple[list[Array] | ServingError, float]]) -> None:
        """Change to the event loop's thread; where a cancelled call ends there already, it comes back a turn later."""
        self._loop.call_soon_threadsafe(self._finish, future)

    def _finish(self, future: Future[tuple[list[Array] | ServingError, float]]) -> None:
        self._timer.cancel()
        self._on_end(self)
        self.call.on_end()
        if not self._answered:
            self._answered = True
            self.call.on_answer(*future.result())

    def expire(self) -> None:
        """Answer that it took too long, and break it off."""
        if self._answered:
            return
        self._answered = True
        # ONNX Runtime looks at this between two nodes; the session stays in use until it did.
        self._options.terminate = True
        self._future.cancel()
        error = DeadlineExceededError(f"the model did not answer within {self.call.timeout:g} seconds")
        self.call.on_answer(error, 0.0)
