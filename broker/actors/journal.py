"""The journal: every change of state becomes durable here, in one order, before anything acts on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.broker.domain.errors import UnavailableError
from tiercel.broker.domain.events import Decision, Event, JobChange, JobEvent

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.domain.endpoints import Delivery, Endpoint
    from tiercel.broker.domain.jobs import Job
    from tiercel.broker.domain.run_records import RunRecord
    from tiercel.broker.store.contract import Store

logger = logging.getLogger(__name__)

# Commits that may wait for the writer, and that it takes into one transaction.
CAPACITY = 1_000
BATCH = 100
# Seconds between attempts to write to a store that does not answer.
RETRY_PAUSES = (0.1, 0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Commit:
    """What becomes durable together.

    Attributes:
        job: A job's new state, or None.
        changes: What to tell of that job, in order.
        endpoint: An endpoint's new state, or None.
        delivery: A delivery's new state, or None.
        decisions: Decisions of the scheduler.
        run_record: What is to be remembered of the job, or None.
        news: Events that are announced but not stored, such as nodes that come and go.
    """

    job: Job | None = None
    changes: Sequence[JobChange] = ()
    endpoint: Endpoint | None = None
    delivery: Delivery | None = None
    decisions: Sequence[Decision] = ()
    run_record: RunRecord | None = None
    news: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class _Pending:
    commit: Commit
    done: asyncio.Future[None]

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Journal:
    """Gives events their numbers, stores changes in batches, then tells listeners.

    A change that cannot be stored fails alone. A store that does not answer is tried again for a few seconds; then the
    journal fails for good, and with it the broker, which starts again from what is durable.

    Args:
        store: Where things become durable.
        clock: For the time of events.
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
        self._broken: UnavailableError | None = None

    @property
    def sequence(self) -> int:
        """Number of the newest event that is durable."""
        return self._durable

    async def commit(self, commit: Commit) -> None:
        """Make a change durable; waits until it is.

        Raises:
            UnavailableError: The store does not answer; the change may or may not be durable.
            Exception: The store cannot take this change; nothing is durable.
        """
        pending = _Pending(commit, asyncio.get_running_loop().create_future())
        await self._queue.put(pending)
        if self._broken is not None:  # nobody writes any more, and others may wait for room
            self._refuse_waiting(self._broken)
        await pending.done

    def announce_nowait(self, event: Event) -> None:
        """Tell listeners something that is durable already."""
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
            UnavailableError: The store does not answer any more.
        """
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._write_batch(batch)
            except UnavailableError as error:
                self._give_up(error, batch)
                raise

    async def _write_batch(self, batch: Sequence[_Pending]) -> None:
        try:
            await self._write_patiently([pending.commit for pending in batch])
        except UnavailableError:
            raise
        except Exception as error:
            if len(batch) == 1:
                batch[0].fail(error)
                return
            # One of them cannot be stored: the others must not suffer for it.
            for pending in batch:
                await self._write_batch([pending])
            return
        for pending in batch:
            pending.succeed()

    async def _write_patiently(self, commits: Sequence[Commit]) -> None:
        for pause in RETRY_PAUSES:
            try:
                await self._write(commits)
            except UnavailableError as error:
                logger.warning("%s; trying again in %g s", error.message, pause)
                await self._clock.sleep(pause)
            else:
                return
        await self._write(commits)

    def _give_up(self, error: UnavailableError, batch: Sequence[_Pending]) -> None:
        self._broken = error
        for pending in batch:
            pending.fail(error)
        self._refuse_waiting(error)

    def _refuse_waiting(self, error: UnavailableError) -> None:
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
            announced.extend(commit.news)
        # Of several states of one thing only the last one counts.
        jobs = {commit.job.id: commit.job for commit in commits if commit.job is not None}
        endpoints = {commit.endpoint.name: commit.endpoint for commit in commits if commit.endpoint is not None}
        deliveries = {commit.delivery.id: commit.delivery for commit in commits if commit.delivery is not None}
        records = {entry.run_record.job_id: entry.run_record for entry in commits if entry.run_record is not None}
        decisions = tuple(decision for commit in commits for decision in commit.decisions)
        await self._store.save(
            jobs=tuple(jobs.values()),
            endpoints=tuple(endpoints.values()),
            deliveries=tuple(deliveries.values()),
            decisions=decisions,
            events=events,
            run_records=tuple(records.values()),
        )
        self._sequence = sequence
        for event in announced:
            self.announce_nowait(event)
        async with self._grown:
            self._durable = sequence
            self._grown.notify_all()
