"""Actors over a store that takes nothing for a while: what is refused, what waits, and that all goes on afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from testing.actors import ALICE, Actors, running, running_actors, submit
from testing.clock import ManualClock
from testing.jobs import make_spec
from testing.until import until
from tiercel.broker.actors.clock import SystemClock
from tiercel.broker.actors.journal import BACKOFF
from tiercel.broker.actors.life import TICK_SECONDS
from tiercel.broker.actors.mailbox import MAX_FAILURES_IN_A_ROW
from tiercel.broker.lifecycle.job_events import Reported
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.endpoints import EndpointUsage
from tiercel.core.errors import CannotWriteError
from tiercel.core.events import ProgressMade
from tiercel.core.feedback import VersionFeedback
from tiercel.core.jobs import JobState, Tier
from tiercel.core.retraining import Retrain


class FullStore(Store):
    """A store on a disk that is full while a test says so; reading works all the time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(sqlite_url(folder / "broker.sqlite"))
        self.full = False
        self.saves = 0
        self.free = asyncio.Event()  # while it is not set, writing takes its time
        self.free.set()

    async def save(self, **rest: Any) -> None:
        if self.full:
            raise CannotWriteError("no space left; nothing was changed")
        await self.free.wait()
        self.saves += 1
        await super().save(**rest)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FullStore]:
    async with FullStore(tmp_path) as opened:
        yield opened


@pytest.fixture
async def actors(store: FullStore) -> AsyncIterator[Actors]:
    async with running_actors(store) as made:
        yield made


async def make_room(actors: Actors, store: FullStore) -> None:
    store.full = False
    actors.clock.advance(BACKOFF.longest_seconds)
    await until(lambda: actors.journal.is_writable)


async def test_what_is_asked_of_a_full_store_is_refused_and_changes_nothing(actors: Actors, store: FullStore) -> None:
    actor, epoch = await actors.connect()
    job = await running(actors)
    store.full = True
    with pytest.raises(CannotWriteError, match="nothing was changed"):
        await actors.service.submit(ALICE, make_spec(endpoint="other"), "key")
    for _ in range(MAX_FAILURES_IN_A_ROW + 1):  # refusing often is no failure of the job's actor
        with pytest.raises(CannotWriteError):
            await actors.service.cancel("alice", job.id)
    assert (await actors.service.find_job("alice", job.id)).state is JobState.RUNNING
    assert [known.name for known in actors.service.endpoints.of("alice")] == ["digits"]
    assert [known.id for known in await store.list_jobs()] == [job.id]
    assert [known.name for known in await store.load_endpoints()] == ["digits"], "no endpoint without its job"
    await make_room(actors, store)
    await actors.heartbeat(actor, epoch)
    assert (await actors.service.submit(ALICE, make_spec(endpoint="other"), "key")).state is JobState.PENDING
    await actors.service.cancel("alice", job.id)
    assert (await actors.job(job.id)).state is JobState.STOPPING


async def test_what_runs_report_to_a_full_store_waits_within_bounds_and_is_not_lost(
    actors: Actors, store: FullStore
) -> None:
    await actors.connect()
    job = await running(actors)
    store.full = True
    reports = 1_500  # more than a job's mailbox takes from streams

    async def report_all() -> None:
        for number in range(1, reports + 1):
            message = Reported(job.run_id, number, number, {"accuracy": 0.1}, actors.clock.now(), float(number))
            await actors.agents.deliver_to_job("n1", job.run_id, message)

    stream = asyncio.ensure_future(report_all())
    await until(lambda: not actors.journal.is_writable)
    await until(lambda: actors.registry.jobs[job.id].statistics().waiting >= 1_000)
    assert not stream.done(), "whoever sends more has to wait"
    assert (await actors.service.find_job("alice", job.id)).epoch == 0, "memory is not ahead of the disk"
    await make_room(actors, store)
    async with asyncio.timeout(90):
        await stream
    assert (await actors.job(job.id)).epoch == reports
    assert len(await store.load_progress(job.id, limit=2 * reports)) == reports


async def test_reports_that_wait_for_a_busy_store_are_taken_in_together(actors: Actors, store: FullStore) -> None:
    await actors.connect()
    job = await running(actors)
    store.free.clear()
    reports, before = 200, store.saves
    for number in range(1, reports + 1):
        message = Reported(job.run_id, number, number, {"accuracy": number / 1_000}, actors.clock.now(), float(number))
        await actors.agents.deliver_to_job("n1", job.run_id, message)
    store.free.set()
    cancelled = await actors.service.cancel("alice", job.id)
    assert (cancelled.state, cancelled.epoch) == (JobState.STOPPING, reports)
    assert store.saves - before <= 6, "a job that talks much does not fall ever further behind"
    stored = await store.load_progress(job.id, limit=2 * reports)
    assert [event.change.epoch for event in stored if isinstance(event.change, ProgressMade)] == [*range(1, 201)]


class LivingClock(ManualClock):
    """A manual clock whose broker lives from tick to tick, as the real one does."""

    def __init__(self) -> None:
        super().__init__()
        self._life = SystemClock(self.now, self.now)

    def alive(self) -> float:
        return self._life.alive()

    def tick(self) -> None:
        self._life.tick()


async def test_a_node_and_its_runs_are_not_held_for_silent_while_the_store_is_full(store: FullStore) -> None:
    """What they say may wait for the disk, behind what waits for it."""
    async with running_actors(store, LivingClock()) as actors:
        await bear_silence(actors, store)


async def bear_silence(actors: Actors, store: FullStore) -> None:
    """Let a node and a run say nothing while the store is full, and then for good."""
    actor, _ = await actors.connect()
    job = await running(actors, report_timeout_seconds=30.0)
    store.full = True
    waiting = asyncio.ensure_future(actors.report(job.run_id, 0.5))
    await until(lambda: not actors.journal.is_writable)
    for _ in range(round(40 / TICK_SECONDS)):
        actors.clock.advance(TICK_SECONDS)
        await until(lambda: actors.clock.wakes_within(TICK_SECONDS))
    await make_room(actors, store)
    await waiting
    await actors.pass_time(3 * TICK_SECONDS)
    assert actor.node.online, "its lease of 10 s did not run out in 40 s in which nobody may have been able to listen"
    assert (await actors.job(job.id)).state is JobState.RUNNING
    await actors.pass_time(11.0)
    assert not actor.node.online, "from now on silence counts again"


async def test_the_scheduler_goes_on_when_there_is_room(actors: Actors, store: FullStore) -> None:
    job = await submit(actors)
    store.full = True
    await actors.connect()  # a node to go to, and nowhere to write that down
    await until(lambda: not actors.journal.is_writable)
    assert (await actors.job(job.id)).state is JobState.PENDING
    await make_room(actors, store)
    await actors.pass_time(2 * TICK_SECONDS)
    assert (await actors.job(job.id)).state is JobState.STARTING


async def test_what_was_asked_behind_a_step_that_waits_for_the_disk_is_refused_and_not_done_later(
    actors: Actors, store: FullStore
) -> None:
    await actors.connect()
    job = await running(actors)
    store.full = True
    waiting = asyncio.ensure_future(actors.agents.deliver_to_job("n1", job.run_id, _report(job.run_id, actors)))
    cancelling = asyncio.ensure_future(actors.service.cancel("alice", job.id))
    async with asyncio.timeout(90):
        with pytest.raises(CannotWriteError, match="nothing was changed"):
            await cancelling
        await waiting
    await make_room(actors, store)
    assert (await actors.job(job.id)).epoch == 1
    assert (await actors.job(job.id)).state is JobState.RUNNING


def _report(run_id: str, actors: Actors) -> Reported:
    return Reported(run_id, 1, 1, {"accuracy": 0.1}, actors.clock.now(), 1.0)


async def test_a_retraining_that_cannot_be_written_is_decided_on_once_there_is_room(
    actors: Actors, store: FullStore
) -> None:
    await actors.connect()
    job = await running(actors, tiers=(Tier(0.9),), retrain=Retrain(1.0))
    await actors.report(job.run_id, 0.93)
    await actors.delivered(f"{job.id}-tier-1")
    await actors.exit(job.run_id)
    store.full = True
    usage = EndpointUsage("digits", 1.0, feedback=(VersionFeedback(1, 100, 10),))
    actors.agents.measure_endpoints("n1", (usage,))
    for _ in range(MAX_FAILURES_IN_A_ROW + 1):
        await actors.service.retrainings.look()
    assert not actors.registry.endpoints["digits"].endpoint.missed
    await make_room(actors, store)
    await actors.service.retrainings.look()
    (known,) = actors.registry.endpoints["digits"].endpoint.retrainings
    assert (await actors.job(known.job_id)).spec.labels["tiercel/repeats"] == job.id
