"""The journal: one order, durable first, and clear about a store that fails."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testing.clock import ManualClock
from testing.jobs import new_job
from testing.until import until
from tiercel.broker.actors import journal as journal_module
from tiercel.broker.actors.journal import BACKOFF, BATCH, Commit, Journal
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import CannotWriteError, StoreDamagedError, UnavailableError
from tiercel.core.events import Event, JobEvent, NodeEvent, StateChanged
from tiercel.core.jobs import Job, JobState

CHANGE = StateChanged(JobState.PENDING, "why")


class FailingStore(Store):
    """A store that fails on demand, as a full disk or a defect would make it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(sqlite_url(folder / "broker.sqlite"))
        self.away = 0
        self.failure: Exception = CannotWriteError("the disk is full")
        self.saves = 0
        self.poison = ""
        self.on_save: Callable[[], object] = lambda: None

    async def save(self, *, jobs: Sequence[Job] = (), **rest: Any) -> None:
        self.saves += 1
        self.on_save()
        if self.away:
            self.away -= 1
            raise self.failure
        if any(job.id == self.poison for job in jobs):
            raise ValueError("this cannot be written")
        await super().save(jobs=jobs, **rest)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FailingStore]:
    async with FailingStore(tmp_path) as opened:
        yield opened


@contextlib.asynccontextmanager
async def running(journal: Journal) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.ensure_future(journal.run())
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def job(job_id: str) -> Job:
    return replace(new_job(), id=job_id)


async def test_events_get_numbers_in_order_and_go_on_from_the_last(store: FailingStore) -> None:
    told: list[Event] = []
    journal = Journal(store, ManualClock(5.0), 41, [told.append])
    async with running(journal):
        await asyncio.gather(*(journal.commit(Commit(job=job(name), changes=[CHANGE, CHANGE])) for name in "ab"))
    expected = [JobEvent(42 + index, name, "alice", 5.0, CHANGE) for index, name in enumerate("aabb")]
    assert told == expected
    assert await store.events_after(41, limit=10) == expected
    assert journal.sequence == 45


async def test_what_comes_together_is_written_together(store: FailingStore) -> None:
    journal = Journal(store, ManualClock(), 0)
    async with running(journal):
        await asyncio.gather(*(journal.commit(Commit(job=job(str(number)))) for number in range(50)))
    assert store.saves < 5
    assert len(await store.list_jobs()) == 50


async def test_listeners_hear_of_it_when_it_is_durable(store: FailingStore, tmp_path: Path) -> None:
    heard: list[int] = []

    def listen(event: Event) -> None:
        assert isinstance(event, JobEvent)
        with contextlib.closing(sqlite3.connect(tmp_path / "broker.sqlite")) as other:
            assert other.execute("SELECT sequence FROM events").fetchall() == [(event.sequence,)]
        heard.append(event.sequence)

    journal = Journal(store, ManualClock(), 0, [listen])
    async with running(journal):
        await journal.commit(Commit(job=job("a"), changes=[CHANGE]))
    assert heard == [1]


async def test_a_listener_that_fails_hurts_nobody(store: FailingStore) -> None:
    told: list[Event] = []

    def broken(_event: Event) -> None:
        raise RuntimeError("no news today")

    journal = Journal(store, ManualClock(), 0, [broken, told.append])
    async with running(journal):
        await journal.commit(Commit(job=job("a"), changes=[CHANGE]))
        await journal.commit(Commit(news=[NodeEvent("n1", True, 1, 0.0)]))
    assert len(told) == 2


async def test_a_change_that_cannot_be_stored_fails_alone(store: FailingStore) -> None:
    store.poison = "b"
    journal = Journal(store, ManualClock(), 0)
    async with running(journal):
        outcomes = await asyncio.gather(
            *(journal.commit(Commit(job=job(name), changes=[CHANGE])) for name in "abc"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), ValueError, type(None)]
    assert [event.sequence for event in await store.events_after(0, limit=10)] == [1, 2], "no number is lost"


async def pass_pause(clock: ManualClock, seconds: float) -> None:
    """Wait until the journal pauses for so long, and let that time pass."""
    await until(lambda: clock.wakes_within(seconds))
    assert not clock.wakes_within(0.99 * seconds)
    clock.advance(seconds)


async def test_a_store_that_takes_nothing_is_tried_for_ever_with_bounded_pauses(store: FailingStore) -> None:
    clock = ManualClock()
    journal = Journal(store, clock, 0)
    store.away = 30
    writable: list[bool] = []
    store.on_save = lambda: writable.append(journal.is_writable)
    async with running(journal):
        commit = asyncio.ensure_future(journal.commit(Commit(job=job("a"), changes=[CHANGE])))
        for attempt in range(store.away):
            await pass_pause(clock, BACKOFF.seconds(attempt + 1))
            assert not commit.done()
        await commit
        assert writable == [True] + 30 * [False], "nor is it while it is tried again"
        assert journal.is_writable
        await journal.commit_or_refuse(Commit(job=job("b")))
    assert journal.sequence == 1
    assert [known.id for known in await store.list_jobs()] == ["a", "b"]


async def test_what_may_be_refused_is_refused_at_once_while_the_store_takes_nothing(store: FailingStore) -> None:
    clock = ManualClock()
    journal = Journal(store, clock, 0)
    store.away = 10**6
    async with running(journal), asyncio.timeout(90):
        must = asyncio.ensure_future(journal.commit(Commit(job=job("must"), changes=[CHANGE])))
        may = [asyncio.ensure_future(journal.commit_or_refuse(Commit(job=job(str(n))))) for n in range(BATCH + 10)]
        # Of the first batch and behind it: none is left to wait with what must wait.
        outcomes = await asyncio.gather(*may, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {CannotWriteError}
        assert not journal.is_writable
        attempts = store.saves
        with pytest.raises(CannotWriteError, match="the disk is full"):
            await journal.commit_or_refuse(Commit(job=job("late")))
        assert (store.saves, must.done()) == (attempts, False)
        store.away = 0
        clock.advance(BACKOFF.longest_seconds)
        await must
    assert [known.id for known in await store.list_jobs()] == ["must"], "what was refused is nowhere"


async def test_what_was_perhaps_written_is_not_refused_but_written_again(store: FailingStore) -> None:
    """A store that did not answer may hold it: to say that nothing was changed might be wrong."""
    clock = ManualClock()
    journal = Journal(store, clock, 0)
    store.away, store.failure = 1, UnavailableError("no answer")
    async with running(journal), asyncio.timeout(90):
        unsure = asyncio.ensure_future(journal.commit_or_refuse(Commit(job=job("a"))))
        await until(lambda: not journal.is_writable)
        with pytest.raises(CannotWriteError, match="no answer"):
            await journal.commit_or_refuse(Commit(job=job("b")))
        assert not unsure.done()
        clock.advance(BACKOFF.longest_seconds)
        await unsure
    assert [known.id for known in await store.list_jobs()] == ["a"]


async def test_a_damaged_store_ends_the_journal_and_every_commit(
    store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "CAPACITY", 2)
    journal = Journal(store, ManualClock(), 0)
    store.away, store.failure = 10**6, StoreDamagedError("restore it")
    commits = [asyncio.ensure_future(journal.commit(Commit(job=job(str(number))))) for number in range(10)]
    await asyncio.sleep(0)
    async with asyncio.timeout(90):
        with pytest.raises(StoreDamagedError, match="restore it"):
            await journal.run()
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StoreDamagedError}
    with pytest.raises(StoreDamagedError):
        await journal.commit(Commit(job=job("late")))


async def test_waiting_for_news_misses_none(store: FailingStore) -> None:
    journal = Journal(store, ManualClock(), 0)
    async with running(journal), asyncio.timeout(90):
        waiting = asyncio.ensure_future(journal.wait_grown(0))
        await asyncio.sleep(0)
        await journal.commit(Commit(job=job("a"), changes=[CHANGE]))
        assert await waiting == 1
        assert await journal.wait_grown(0) == 1, "what is there already is not waited for"


async def test_a_commit_that_nobody_waits_for_any_more_is_kept_all_the_same(store: FailingStore) -> None:
    journal = Journal(store, ManualClock(), 0)
    commit = asyncio.ensure_future(journal.commit(Commit(job=job("a"), changes=[CHANGE])))
    await asyncio.sleep(0)
    commit.cancel()
    async with running(journal):
        await journal.commit(Commit(job=job("b"), changes=[CHANGE]))
    assert [known.id for known in await store.list_jobs()] == ["a", "b"]
