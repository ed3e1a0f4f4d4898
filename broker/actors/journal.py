"""The journal: every change of state becomes durable here, in one order, before anything acts on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.core.backoff import Backoff
from tiercel.core.errors import CannotWriteError, StoreDamagedError, UnavailableError
from tiercel.core.events import Event, JobChange, JobEvent, ShareDecision, StateChanged

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.store.sql import Store
    from tiercel.core.endpoints import Delivery, Endpoint
    from tiercel.core.jobs import Job
    from tiercel.core.run_records import RunRecord
    from tiercel.core.tenant_use import TenantUse

logger = logging.getLogger(__name__)

# Commits that may wait for the writer, and that it takes into one transaction.
CAPACITY = 1_000
BATCH = 100
# Pauses between attempts to write to a store that takes nothing, in seconds: the first, and the longest; each is twice
# the one before.
BACKOFF = Backoff(first_seconds=0.1, longest_seconds=5.0)


@dataclass(frozen=True, slots=True)
class Commit:
    """What becomes durable together."""

    job: Job | None = None  # a job's new state, or None
    changes: Sequence[JobChange] = ()  # what to tell of that job, in order
    endpoint: Endpoint | None = None  # an endpoint's new state, or None
    delivery: Delivery | None = None  # a delivery's new state, or None
    decisions: Sequence[ShareDecision] = ()  # decisions of the scheduler
    successor: Job | None = None  # the job that begins where ``job`` ends, or None
    run_record: RunRecord | None = None  # what is to be remembered of the job, or None
    use: TenantUse | None = None  # what the job's tenant has used with it, or None
    news: Sequence[Event] = ()  # events that are announced with it but not stored, such as a version that answers


@dataclass(frozen=True, slots=True)
class _Pending:
    commit: Commit
    done: asyncio.Future[None]
    refusable: bool

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Journal:
    """Gives events their numbers, stores changes in batches, then tells listeners.

    A change that cannot be stored fails alone. A store that takes nothing, since its disk is full or somebody else
    holds it, is tried again for ever: what must happen waits for it (:meth:`commit`), what was asked for from outside
    is refused meanwhile (:meth:`commit_or_refuse`). Only a damaged store ends the journal, and with it the broker.

    Args:
        last_sequence: Number of the newest event in the store.
        listeners: Called with each event after it is durable; must not block.
    """

    def __init__(
        self, store: Store, clock: Clock, last_sequence: int, listeners: Sequence[Callable[[Event], None]] = ()
    ) -> None:
        self._store = store
        self._clock = clock
        self._sequence = last_sequence
        self._durable = last_sequence
        self._listeners = tuple(listeners)
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue(CAPACITY)
        self._grown = asyncio.Condition()
        self._away: UnavailableError | None = None
        self._tell_away: Callable[[CannotWriteError], None] = lambda _: None
        self._failures = 0
        self._broken: StoreDamagedError | None = None

    @property
    def sequence(self) -> int:
        """Number of the newest event that is durable."""
        return self._durable

    @property
    def is_writable(self) -> bool:
        """Whether nothing waits for a store that takes nothing, as far as is known."""
        return self._away is None

    def check_writable(self) -> None:
        """Check that the store takes what it is given, as far as is known.

        Raises:
            CannotWriteError: It does not; says why.
        """
        if self._away is not None:
            raise _refusal(self._away)

    def on_away(self, send: Callable[[CannotWriteError], None]) -> None:
        """Have ``send`` called whenever the store is found to take nothing; must not block."""
        self._tell_away = send

    async def commit(self, commit: Commit) -> None:
        """Make a change durable; waits until it is, however long the store takes nothing.

        Raises:
            StoreDamagedError: The store is damaged; nothing becomes durable any more.
            Exception: The store cannot take this change; nothing is durable.
        """
        await self._submit(commit, refusable=False)

    async def commit_or_refuse(self, commit: Commit) -> None:
        """The same for a change that need not be: while the store takes nothing it is not made.

        Raises:
            CannotWriteError: The store takes nothing now; nothing is durable.
            StoreDamagedError: The store is damaged; nothing becomes durable any more.
            Exception: The store cannot take this change; nothing is durable.
        """
        self.check_writable()
        await self._submit(commit, refusable=True)

    async def _submit(self, commit: Commit, *, refusable: bool) -> None:
        pending = _Pending(commit, asyncio.get_running_loop().create_future(), refusable)
        await self._queue.put(pending)
        if self._broken is not None:  # nobody writes any more, and others may wait for room
            self._fail_waiting(self._broken)
        await pending.done

    def announce_nowait(self, event: Event) -> None:
        """Tell listeners something that is durable already, or that is never stored."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # news only: what is durable stands, and the other listeners still hear of it
                logger.exception("%s could not be announced", type(event).__name__)

    async def wait_grown(self, sequence: int) -> int:
        """Wait until an event newer than ``sequence`` is durable; returns the newest number."""
        async with self._grown:
            await self._grown.wait_for(lambda: self._durable > sequence)
            return self._durable

    async def run(self) -> None:
        """Write what was committed, in order, for ever.

        Raises:
            StoreDamagedError: The store is damaged.
        """
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._write_batch(batch)
            except StoreDamagedError as error:
                self._broken = error
                for pending in batch:
                    pending.fail(error)
                self._fail_waiting(error)
                raise

    async def _write_batch(self, batch: list[_Pending]) -> None:
        """Write commits together, as often as it takes."""
        while batch:
            try:
                await self._write([pending.commit for pending in batch])
            except CannotWriteError as error:
                await self._pause(error, _without_refusable(batch, error))
            except UnavailableError as error:  # it may have been written: whoever waits for it is told nothing wrong
                await self._pause(error, batch)
            except StoreDamagedError:
                raise
            except Exception as error:
                self._away, self._failures = None, 0
                await self._write_apart(batch, error)
                return
            else:
                self._away, self._failures = None, 0
                for pending in batch:
                    pending.succeed()
                return

    async def _write_apart(self, batch: list[_Pending], error: Exception) -> None:
        """One of them cannot be stored: the others must not suffer for it."""
        if len(batch) == 1:
            batch[0].fail(error)
            return
        for pending in batch:
            await self._write_batch([pending])

    async def _pause(self, error: UnavailableError, batch: list[_Pending]) -> None:
        """Wait before the next attempt; what comes meanwhile and may be refused is refused."""
        pause = BACKOFF.seconds(self._failures + 1)
        logger.log(
            logging.INFO if self._failures else logging.WARNING, "%s Trying again in %g s.", error.message, pause
        )
        self._failures += 1
        self._away = error
        waiting = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        for pending in _without_refusable(waiting, _refusal(error)):
            self._queue.put_nowait(pending)
        self._tell_away(_refusal(error))
        await self._clock.sleep(pause)
        if not batch:  # nothing is left that would find out whether there is room by now: whoever comes next does
            self._away = None

    def _fail_waiting(self, error: StoreDamagedError) -> None:
        while not self._queue.empty():
            self._queue.get_nowait().fail(error)

    async def _write(self, commits: Sequence[Commit]) -> None:
        now = self._clock.now()
        events: list[JobEvent] = []
        announced: list[Event] = []
        sequence = self._sequence
        for commit in commits:
            if commit.job is not None:
                for change in commit.changes:
                    sequence += 1
                    events.append(JobEvent(sequence, commit.job.id, commit.job.tenant, now, change))
                    announced.append(events[-1])
            if (made := commit.successor) is not None:
                sequence += 1
                events.append(JobEvent(sequence, made.id, made.tenant, now, StateChanged(made.state, made.reason)))
                announced.append(events[-1])
            announced.extend(commit.news)
        # Of several states of one thing only the last one counts.
        jobs = {job.id: job for commit in commits for job in (commit.job, commit.successor) if job is not None}
        endpoints = {commit.endpoint.name: commit.endpoint for commit in commits if commit.endpoint is not None}
        deliveries = {commit.delivery.id: commit.delivery for commit in commits if commit.delivery is not None}
        records = {entry.run_record.job_id: entry.run_record for entry in commits if entry.run_record is not None}
        uses = {commit.use.tenant: commit.use for commit in commits if commit.use is not None}
        decisions = tuple(decision for commit in commits for decision in commit.decisions)
        await self._store.save(
            jobs=tuple(jobs.values()),
            endpoints=tuple(endpoints.values()),
            deliveries=tuple(deliveries.values()),
            decisions=decisions,
            events=events,
            run_records=tuple(records.values()),
            uses=tuple(uses.values()),
        )
        self._sequence = sequence
        for event in announced:
            self.announce_nowait(event)
        async with self._grown:
            self._durable = sequence
            self._grown.notify_all()


def _without_refusable(batch: list[_Pending], error: CannotWriteError) -> list[_Pending]:
    """Refuse those that may be refused; returns the others, taking the refused out of ``batch`` itself."""
    for pending in batch:
        if pending.refusable:
            pending.fail(error)
    batch[:] = [pending for pending in batch if not pending.refusable]
    return batch


def _refusal(error: UnavailableError) -> CannotWriteError:
    return error if isinstance(error, CannotWriteError) else CannotWriteError(error.message)
