"""Runs models: on the event loop when that is cheaper, else in a small pool of threads behind bounded queues.

Which call runs next is decided here and not by the pool, so that models share the threads by weight and one that is
over its CPU cap holds nobody up. This is the seam for batching: whoever implements :class:`Executor` may gather calls
before it runs them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import onnxruntime as ort

from tiercel.serving.accounts import Account, Room
from tiercel.serving.engine import Session
from tiercel.serving.errors import DeadlineExceededError, ServingError
from tiercel.serving.tensors import Array
from tiercel.serving.turns import Turns

Answered = Callable[[list[Array] | ServingError, float], None]
# What a run gave, the seconds it took, and the CPU seconds.
Ran = tuple[list[Array] | ServingError, float, float]

# A model with a cap may keep this fraction of all room, so that what it is made to wait with takes none from others.
_OWN_ROOM = 4


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
        account: Whose call it is.
    """

    session: Session
    feeds: Mapping[str, Array]
    outputs: Sequence[str]
    elements: int
    size: int
    timeout: float
    on_answer: Answered
    on_end: Callable[[], None]
    account: Account


class Executor(Protocol):
    """Runs calls."""

    def submit(self, call: Call) -> None:
        """Run it now or soon; called on the event loop.

        Raises:
            OverloadedError: Too much is waiting; the call's functions will not be called.
        """

    def shares_changed(self, *, limited: bool) -> None:
        """Accounts may use something else than before; called on the event loop.

        Args:
            limited: Whether any of them is limited; if not, calls run in the order in which they come.
        """


def _run(call: Call, options: ort.RunOptions | None) -> tuple[list[Array] | ServingError, float]:
    begin = time.perf_counter()
    try:
        result: list[Array] | ServingError = call.session.run(call.outputs, call.feeds, options)
    except ServingError as error:
        result = error
    return result, time.perf_counter() - begin


def _run_measured(call: Call, options: ort.RunOptions | None) -> Ran:
    """Run it; a session of several threads is held to keep each of them as busy as the one that can be looked at."""
    begin = time.thread_time()
    result, seconds = _run(call, options)
    return result, seconds, (time.thread_time() - begin) * call.session.threads


class ThreadExecutor:
    """Runs short calls inline and others in threads.

    Args:
        threads: Calls that run at the same time.
        max_pending: Calls that may wait or run in threads; a quarter of it for each model with a cap.
        max_pending_bytes: Input bytes of those calls together; one call is always let in.
    """

    def __init__(self, threads: int, max_pending: int, max_pending_bytes: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "inference")
        # One more than there are threads, so that none is idle until the event loop has found the next one.
        self._fair_slots = threads + 1
        # Where nobody is limited the pool's own queue does, which saves two changes of threads a call.
        self._slots = max_pending
        self._room = Room(max_pending, max_pending_bytes)
        self._turns = Turns()
        self._calls: set[PendingCall] = set()
        self._running = 0
        self._wake: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Break off what runs or waits, and let the threads go."""
        for call in tuple(self._calls):
            call.expire()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, call: Call) -> None:
        """See :meth:`Executor.submit`."""
        account = call.account
        may_run = not account.waiting and account.may_run(time.perf_counter())
        if may_run and call.elements <= call.session.inline_elements:
            self._run_inline(call)
            return
        room = self._room_of(account)
        room.take(call.size)
        pending = PendingCall(call, room, self._left)
        self._calls.add(pending)
        if may_run and self._running < self._slots and self._turns.is_idle:
            self._start(pending)
            return
        self._turns.add(pending, account)
        self._dispatch()

    def shares_changed(self, *, limited: bool) -> None:
        """See :meth:`Executor.shares_changed`."""
        self._slots = self._fair_slots if limited else self._room.max_calls
        self._dispatch()

    def _room_of(self, account: Account) -> Room:
        if account.share.cpu_cap_cores is None:
            return self._room
        if account.room is None:
            account.room = Room(max(1, self._room.max_calls // _OWN_ROOM), self._room.max_bytes // _OWN_ROOM)
        return account.room

    def _run_inline(self, call: Call) -> None:
        account = call.account
        if account.is_sampled():
            result, seconds, cpu = _run_measured(call, None)
        else:
            result, seconds = _run(call, None)
            cpu = account.cost
        account.charge(cpu)
        call.on_end()
        call.on_answer(result, seconds)

    def _dispatch(self) -> None:
        """Give turns until the threads have enough to do, or nobody may run."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        while self._running < self._slots:
            pending = self._turns.take(time.perf_counter())
            if pending is None:
                wait = self._turns.seconds_to_next()
                if wait is not None:
                    self._wake = asyncio.get_running_loop().call_later(wait, self._dispatch)
                return
            if pending.call.elements <= pending.call.session.inline_elements:
                # One at a time: requests that need no turn come in between.
                self._wake = asyncio.get_running_loop().call_later(0, self._dispatch)
                pending.leave()
                self._run_inline(pending.call)
                return
            self._start(pending)

    def _start(self, pending: PendingCall) -> None:
        self._running += 1
        account = pending.call.account
        pending.start(self._pool, partial(self._ran, account, self._turns.begin(account)))

    def _ran(self, account: Account, expected: float, cpu_seconds: float) -> None:
        self._running -= 1
        self._turns.end(account, expected, cpu_seconds)
        if not self._turns.is_idle:
            self._dispatch()

    def _left(self, call: PendingCall) -> None:
        """A call neither waits nor runs any more."""
        if not self._turns.is_idle:
            self._turns.discard(call, call.call.account)
        self._calls.discard(call)


class PendingCall:
    """A call that waits for its turn or runs: answers it once, whichever comes first, the result or the timeout."""

    __slots__ = ("_answered", "_future", "_loop", "_on_left", "_on_ran", "_options", "_room", "_timer", "call")

    def __init__(self, call: Call, room: Room, on_left: Callable[[PendingCall], None]) -> None:
        self.call = call
        self._room = room
        self._on_left = on_left
        self._on_ran: Callable[[float], None] = lambda _: None
        self._answered = False
        self._options = ort.RunOptions()
        self._options.log_severity_level = 4
        self._future: Future[Ran] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(call.timeout, self.expire)

    def start(self, pool: ThreadPoolExecutor, on_ran: Callable[[float], None]) -> None:
        """Run it; ``on_ran`` is called on the event loop with the CPU seconds it took."""
        self._on_ran = on_ran
        self._future = pool.submit(_run_measured, self.call, self._options)
        self._future.add_done_callback(self._hand_over)

    def leave(self) -> None:
        """It does not wait any more, and somebody else runs it."""
        self._timer.cancel()
        self._room.give_back(self.call.size)
        self._on_left(self)

    def _hand_over(self, future: Future[Ran]) -> None:
        """Change to the event loop's thread; where a cancelled call ends there already, it comes back a turn later."""
        self._loop.call_soon_threadsafe(self._finish, future)

    def _finish(self, future: Future[Ran]) -> None:
        self.leave()
        result, seconds, cpu = (_NOTHING, 0.0, 0.0) if future.cancelled() else future.result()
        self._on_ran(cpu)
        self.call.on_end()
        if not self._answered:
            self._answered = True
            self.call.on_answer(result, seconds)

    def expire(self) -> None:
        """Answer that it took too long, and break it off."""
        if self._answered:
            return
        self._answered = True
        if self._future is None:
            self.leave()
            self.call.on_end()
        else:
            # ONNX Runtime looks at this between two nodes; the session stays in use until it did.
            self._options.terminate = True
            self._future.cancel()
        error = DeadlineExceededError(f"the model did not answer within {self.call.timeout:g} seconds")
        self.call.on_answer(error, 0.0)


_NOTHING: list[Array] = []
