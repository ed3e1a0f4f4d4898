"""The journal: every change of state becomes durable here, in one order, before anything acts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiercel.broker.domain.events import Decision, Event, JobChange, JobEvent

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.domain.endpoints import Delivery, Endpoint
    from tiercel.broker.domain.jobs import Job
    from tiercel.broker.store.contract import Store

# Commits that may wait for the writer, and that it takes into one transaction.
CAPACITY = 1_000
BATCH = 100


@dataclass(frozen=True, slots=True)
class Commit:
    """What becomes durable together.

    Attributes:
        job: A job's new state, or None.
        changes: What to tell of that job, in order.
        endpoint: An endpoint's new state, or None.
        delivery: A delivery's new state, or None.
        decision: A decision of the scheduler, or None.
        news: Events that are announced but not stored, such as nodes that come and go.
    """

    job: Job | None = None
    changes: Sequence[JobChange] = ()
    endpoint: Endpoint | None = None
    delivery: Delivery | None = None
    decision: Decision | None = None
    news: Sequence[Event] = ()


@dataclass(slots=True)
class _Pending:
    commit: Commit
    done: asyncio.Future[None] = field()


class Journal:
    """Gives events their numbers, stores changes in batches, then tells listeners.

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

    @property
    def sequence(self) -> int:
        """Number of the newest event that is durable."""
        return self._durable

    async def commit(self, commit: Commit) -> None:
        """Make a change durable; waits until it is."""
        pending = _Pending(commit, asyncio.get_running_loop().create_future())
        await self._queue.put(pending)
        await pending.done

    async def wait_grown(self, sequence: int) -> int:
        """Wait until an event newer than ``sequence`` is durable; returns the newest number."""
        async with self._grown:
            await self._grown.wait_for(lambda: self._durable > sequence)
            return self._durable

    async def run(self) -> None:
        """Write what was committed, in order, for ever."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._write([pending.commit for pending in batch])
            except Exception as error:
                for pending in batch:
                    if not pending.done.done():
                        pending.done.set_exception(error)
                continue
            for pending in batch:
                if not pending.done.done():
                    pending.done.set_result(None)

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
        decisions = [commit.decision for commit in commits if commit.decision is not None]
        await self._store.save(
            jobs=tuple(jobs.values()),
            endpoints=tuple(endpoints.values()),
            deliveries=tuple(deliveries.values()),
            decisions=decisions,
            events=events,
        )
        self._sequence = sequence
        for event in announced:
            for listener in self._listeners:
                listener(event)
        async with self._grown:
            self._durable = sequence
            self._grown.notify_all()
