"""Runs calls: small ones on the event loop, others on workers, and together whatever came together.

There is no window: a batch is what arrived in one turn of the event loop, or what waited while the workers were busy.
Whose turn it is, of the models and of the endpoints with variants, is decided here when a worker is free, by weight
among those that wait, and one that is over its CPU cap holds nobody up; which of its calls run, and on which version,
its source says then. A call ends once, whichever comes first: its outputs, its deadline, or its caller leaves.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from functools import partial
from itertools import groupby

from tiercel.core.errors import DeadlineExceededError, TiercelError
from tiercel.serving.accounting.accounts import Account
from tiercel.serving.accounting.room import Room
from tiercel.serving.dispatch.call import Call, Run
from tiercel.serving.dispatch.fair_queue import FairQueue
from tiercel.serving.dispatch.rows import Ran, ran_or_failed, run_calls, run_calls_measured
from tiercel.serving.explaining.recent_requests import RunTimes
from tiercel.serving.runtime.workers import Workers

_logger = logging.getLogger(__name__)

# A model with a cap may keep this fraction of all room, so that what it is made to wait with takes none from others.
_OWN_ROOM = 4
# Small calls of one turn that take no longer together run where they are: to hand them over costs more than the
# others lose, who wait about as long for the turn's reading and writing anyway.
# 64 of LeNet's take 1.1 ms on a slow core.
_SHORT_SECONDS = 2e-3
# Deadlines are looked at again after so many seconds at the earliest, since each look is at all calls.
_SWEEP_SECONDS = 0.002


class Dispatcher:
    """See the module. Everything but the runs themselves happens on the event loop.

    Args:
        workers: Where batches run.
        max_pending: Calls of models that may wait or run on workers; a quarter of it for each model with a cap, and as
            many for each endpoint with variants.
        max_pending_bytes: Input bytes of those calls together; one call is always let in.
        max_queue_delay: Seconds that a call may wait for others while a worker is idle; 0, unless somebody wants
            larger batches at any price.
    """

    def __init__(
        self, workers: Workers, max_pending: int, max_pending_bytes: int, max_queue_delay: float = 0.0
    ) -> None:
        self._workers = workers
        self._room = Room(max_pending, max_pending_bytes)
        self._queue = FairQueue(max_queue_delay)
        self._waits_for_company = max_queue_delay > 0
        self._arrived: list[Call] = []
        self._flushing = False
        self._pending: set[Call] = set()
        self._sweep_at = math.inf
        self._sweeper: asyncio.TimerHandle | None = None
        self._wake: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Break off what runs or waits."""
        now = time.perf_counter()
        arrived, self._arrived = self._arrived, []
        for call in (*arrived, *self._pending):
            self.give_up(call, DeadlineExceededError("the server is leaving; ask the one that follows it"), now)
        for call in arrived:
            call.let_go()
        for timer in (self._sweeper, self._wake):
            if timer is not None:
                timer.cancel()

    def submit(self, call: Call) -> None:
        """Run a call of a version soon; called on the event loop.

        Raises:
            CapacityExceededError: Too much is waiting, or so much that its deadline would pass; the call will neither
                be answered nor fail.
        """
        if call.elements <= call.session.inline_elements and not self._waits_for_company:
            self._arrived.append(call)
        else:
            self._enqueue(call)
        call.loaded.acquire()
        if not self._flushing:
            self._flush_soon()

    def queue(self, call: Call) -> None:
        """As :meth:`submit`, for a call whose source says when its turn comes which version runs it.

        Raises:
            CapacityExceededError: Too much is waiting.
        """
        self._enqueue(call)
        if not self._flushing:
            self._flush_soon()

    def new_room(self) -> Room:
        """As much room as there is for all models together."""
        return Room(self._room.max_calls, self._room.max_bytes)

    def check_room(self, account: Account) -> None:
        """Say early that a call of this model would be refused, before anything is spent on reading it.

        Raises:
            CapacityExceededError: Too much is waiting.
        """
        self._room_of(account).check()

    def has_room(self, account: Account) -> bool:
        """Whether :meth:`check_room` would let a call of this model in."""
        return self._room_of(account).has_room()

    def look_again(self) -> None:
        """Accounts may use something else than before, or sources choose otherwise; called on the event loop."""
        if not self._flushing:
            self._flush_soon()

    def give_turns(self) -> None:
        """Have workers begin what waits, rather than in the event loop's next turn; for who has more to do in this."""
        if not self._queue.is_idle:
            self._dispatch()

    def cancelled(self, call: Call) -> None:
        """A call that waits or runs was cancelled."""
        self._leave(call)

    def give_up(self, call: Call, error: TiercelError, now: float) -> None:
        """Answer with an error instead."""
        if call.ended:
            return
        call.ended = True
        if call.owner is not None:
            self._leave(call)
        try:
            call.fail(error, now)
        except Exception:  # the border: one caller's defect must not take the answers from the others
            _logger.exception("An error could not be handed over")

    def _flush_soon(self) -> None:
        self._flushing = True
        asyncio.get_running_loop().call_soon(self._flush)

    def _room_of(self, account: Account) -> Room:
        if account.share.cpu_cap_cores is None:
            return self._room
        if account.room is None:
            account.room = Room(max(1, self._room.max_calls // _OWN_ROOM), self._room.max_bytes // _OWN_ROOM)
        return account.room

    def _enqueue(self, call: Call) -> None:
        account = call.account
        if call.behind >= 0:  # others are not behind all that wait
            account.check_wait(call.deadline - call.begin, call.rows)
        room = call.source.room or self._room_of(account)
        room.take(call.size)
        call.room, call.owner = room, self
        self._pending.add(call)
        if call.deadline < self._sweep_at:
            self._sweep_later(call.deadline)
        self._queue.add(call)

    def _flush(self) -> None:
        """Run what arrived in this turn of the event loop."""
        self._flushing = False
        arrived = self._arrived
        if arrived:
            self._arrived = []
            first = arrived[0].loaded
            if all(call.loaded is first for call in arrived):
                self._run_arrived(arrived)
            else:
                arrived.sort(key=_by_version)  # stable: calls of a version stay in order
                for _, calls in groupby(arrived, _by_version):
                    self._run_arrived(list(calls))
        self.give_turns()

    def _run_arrived(self, calls: list[Call]) -> None:
        """Run calls of one version here if all of them together are small, else let them wait for a worker."""
        loaded = calls[0].loaded
        account = loaded.account
        small = len(calls) == 1 or self._is_short(calls)
        if not small or account.waiting or not account.may_run(time.perf_counter()):
            self._enqueue_all(calls)
        elif len(calls) == 1:
            self._run_inline(calls)
        else:
            for batch in batches_of(calls):
                self._run_inline(batch)

    @staticmethod
    def _is_short(calls: list[Call]) -> bool:
        """Whether all of them, each small by itself, hold the event loop up no longer than their bytes do."""
        session = calls[0].session
        if sum([call.elements for call in calls]) <= session.inline_elements:
            return True
        most = calls[0].max_rows
        full, rest = divmod(sum([call.rows for call in calls]), most)
        # As they would run: a model may take twice as long for one batch that is twice as large as its best.
        seconds = full * session.estimate(most) + (session.estimate(rest) if rest else 0.0)
        return 0.0 < seconds <= _SHORT_SECONDS  # 0 is unknown

    def _enqueue_all(self, calls: list[Call]) -> None:
        for call in calls:
            if call.ended:
                call.let_go()
                continue
            try:
                self._enqueue(call)
            except TiercelError as error:
                call.let_go()
                call.ended = True
                call.fail(error, time.perf_counter())

    def _run_inline(self, calls: list[Call]) -> None:
        loaded = calls[0].loaded
        account = loaded.account
        if account.is_sampled():
            ran = run_calls_measured(calls[0].session, calls)
            cpu = ran.cpu
            account.cpu_part = cpu / (ran.compute_input + ran.compute_infer + ran.compute_output)
        else:
            ran = run_calls(calls[0].session, calls)
            cpu = account.cpu_part * (ran.compute_input + ran.compute_infer + ran.compute_output)
        account.charge(cpu, ran.rows)
        loaded.release(len(calls))
        _answer(calls, ran)

    def _dispatch(self) -> None:
        """Give turns until the workers have enough to do, or nobody may run."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        workers, queue = self._workers, self._queue
        now = time.perf_counter()  # one for all turns, so that whoever says that it waits is asked once
        while not queue.is_idle and workers.may_run_ahead:
            calls = queue.take(now, idle=workers.idle, workers=workers.count)
            if not calls:
                wait = queue.seconds_to_next(now)
                if wait is not None:
                    self._wake = asyncio.get_running_loop().call_later(wait, self._dispatch)
                break
            calls = self._without_late(calls, now)
            if calls:
                self._start(calls, now)

    def _without_late(self, calls: list[Call], now: float) -> list[Call]:
        """The calls that can still be answered in time; the others are told."""
        session = calls[0].session
        shortest = session.estimate(1)
        if all(call.deadline >= now + shortest for call in calls):
            return calls
        in_time: list[Call] = []
        for call in calls:
            if call.deadline >= now + session.estimate(call.rows):
                in_time.append(call)
            else:
                self.give_up(call, _too_late(call), now)
        return [call for call in in_time if not call.ended]  # who was told may have taken others with it

    def _start(self, calls: list[Call], now: float) -> None:
        account, source = calls[0].account, calls[0].source
        rows = sum([call.rows for call in calls])
        run = Run(source, calls, self._queue.begin(account, rows), rows)
        source.began(run, now)
        account.running += rows
        for call in calls:
            call.run = run
        session = calls[0].session
        self._workers.run(partial(run_calls_measured, session, calls, run.options), partial(self._ran, run))

    def _ran(self, run: Run, result: Ran | Exception) -> None:
        now = time.perf_counter()
        calls = run.calls
        loaded, account = calls[0].loaded, calls[0].account
        result = ran_or_failed(result, calls, run.rows)
        self._queue.end(account, run.expected, result.cpu, run.rows)
        account.accelerator_seconds += result.accelerator
        account.running -= run.rows
        seconds = result.compute_input + result.compute_infer + result.compute_output
        account.drain.drained(run.rows, now, bool(run.source), seconds or math.inf)
        run.source.ended(run, now)
        for call in calls:
            self._pending.discard(call)
            call.run = call.owner = None  # or calls and run would keep each other, and all inputs, for a while
            if call.room is not None:
                call.room.give_back(call.size)
        loaded.release(len(calls))
        self.give_turns()  # first, so that the worker has something to do while answers are written
        _answer(calls, result)

    def _leave(self, call: Call) -> None:
        """A call does not wait any more, and nobody waits for its run."""
        self._pending.discard(call)
        if call.run is not None:
            call.run.lose()
            return
        self._queue.discard(call)
        if call.room is not None:
            call.room.give_back(call.size)
        call.let_go()

    def _sweep_later(self, at: float) -> None:
        """Look at deadlines at this time; one timer for all calls, since hardly any call meets its deadline."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = at
        self._sweeper = asyncio.get_running_loop().call_later(max(0.0, at - time.perf_counter()), self._sweep)

    def _sweep(self) -> None:
        self._sweeper, self._sweep_at = None, math.inf
        now = time.perf_counter()
        for call in [call for call in self._pending if call.deadline <= now]:
            self.give_up(call, _too_late(call), now)
        if self._pending:
            self._sweep_later(max(min([call.deadline for call in self._pending]), now + _SWEEP_SECONDS))


def batches_of(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls of one version in batches: of one key, none over the most rows, in order."""
    batches: list[list[Call]] = []
    open_ones: dict[object, tuple[list[Call], int]] = {}
    for call in calls:
        batch, rows = open_ones.get(call.key, (None, 0))
        if batch is None or call.key is None or rows + call.rows > call.max_rows:
            batch, rows = [], 0
            batches.append(batch)
        batch.append(call)
        open_ones[call.key] = batch, rows + call.rows
    return batches


def _by_version(call: Call) -> int:
    return id(call.loaded)


def _too_late(call: Call) -> DeadlineExceededError:
    return DeadlineExceededError(f"the model did not answer within {call.deadline - call.begin:.6g} seconds")


def _answer(calls: Sequence[Call], ran: Ran) -> None:
    """Answer those that were not answered meanwhile, and count the run."""
    now = time.perf_counter()
    answered = rows = 0
    delays = 0.0
    times: RunTimes | None = None
    for place, (call, outcome) in enumerate(zip(calls, ran.outcomes, strict=True), 1):
        if call.ended:
            continue
        call.ended = True
        if call.trace is not None:
            call.trace.run = times = times or ran.times(len(calls))
            call.trace.place = place
        try:
            if isinstance(outcome, list):
                if call.is_request:
                    answered += 1
                    rows += call.rows
                    delays += now - call.begin
                call.answer(outcome, now)
            else:
                call.fail(outcome, now)
        except Exception:  # the border: one caller's defect must not take the answers from the others
            _logger.exception("An answer could not be handed over")
    statistics = calls[0].loaded.statistics
    ran.count(statistics, answered, rows, delays, now)
    if now >= statistics.inputs.due and answered:
        statistics.inputs.take(calls[-1].feeds, now)
