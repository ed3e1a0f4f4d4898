"""Removing what is kept no longer, while others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from testing.clock import ManualClock
from testing.until import until
from tiercel.broker.actors.retention import FIRST_LOOK_SECONDS, LOOK_SECONDS, Retention
from tiercel.broker.lifecycle.retention import EVENTS, FILES, LOGS, KeptOfJob, RetentionSettings

if TYPE_CHECKING:
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.store.inventory import Inventory

SETTINGS = RetentionSettings(events_seconds=10.0, logs_seconds=10.0, files_seconds=10.0)


class FakeBroker:
    """A broker with three jobs that were over long ago; what is removed of one makes somebody need another."""

    def __init__(self) -> None:
        self.removed: list[tuple[str, str]] = []
        self.alive: set[str] = set()
        self.needed: set[str] = set()
        self.fails = False
        self.projects: set[str] = set()
        self.living: set[str] = set()
        self.then_alive: dict[str, str] = {}
        self.then_needed: dict[str, str] = {}

    async def of_jobs(self, tenant: str = "") -> list[KeptOfJob]:
        kept = {EVENTS: 1, LOGS: 1, FILES: 1}
        gone = {job for job, what in self.removed if what == FILES}
        return [KeptOfJob(name, "alice", at, kept, kept) for at, name in enumerate("abc") if name not in gone]

    async def remove(self, job_id: str, what: str) -> None:
        if self.fails:
            raise OSError("the disk fails")
        self.removed.append((job_id, what))
        self.alive.add(self.then_alive.get(job_id, ""))
        self.needed.add(self.then_needed.get(job_id, ""))

    async def unused_projects(self, tenant: str, roots: set[str]) -> dict[str, int]:
        return {name: 7 for name in self.projects if name not in roots}

    async def remove_projects(self, tenant: str, objects: dict[str, int], roots: set[str]) -> None:
        self.projects -= set(objects) - roots

    def tenants_with_projects(self) -> list[str]:
        return ["alice"]

    def living_projects(self, tenant: str) -> set[str]:
        return self.living

    def needed_jobs(self) -> set[str]:
        return self.needed

    @asynccontextmanager
    async def undisturbed(self, job_id: str) -> AsyncIterator[bool]:
        yield job_id not in self.alive


def retention_of(broker: FakeBroker, clock: ManualClock | None = None) -> Retention:
    fake = cast("Any", broker)
    return Retention(cast("BrokerService", fake), cast("Inventory", fake), clock or ManualClock(), SETTINGS)


async def test_what_is_planned_is_what_goes() -> None:
    broker = FakeBroker()
    retention = retention_of(broker)
    planned = [(each.job_id, each.what) for each in await retention.planned()]
    assert broker.removed == []
    assert [(each.job_id, each.what) async for each in retention.carry_out()] == planned == broker.removed
    assert await retention.planned() == []


async def test_projects_go_that_nobody_runs_from_but_for_those_that_somebody_began_to() -> None:
    broker = FakeBroker()
    broker.projects = {"old", "older"}
    broker.removed = [(name, FILES) for name in "abc"]
    retention = retention_of(broker)
    (planned,) = await retention.planned("alice")
    assert (planned.job_id, planned.what, planned.count, planned.size_bytes) == ("", "projects", 2, 14)
    assert planned.reason == "no job of the last 180 days runs from them"
    broker.living = {"old"}
    assert [removal.what async for removal in retention.carry_out("alice")] == ["projects"]
    assert broker.projects == {"old"}


async def test_a_job_that_goes_on_or_becomes_needed_meanwhile_keeps_what_it_has_left() -> None:
    broker = FakeBroker()
    broker.then_alive, broker.then_needed = {"a": "b"}, {"a": "c"}
    async for _ in retention_of(broker).carry_out():
        pass
    assert {job for job, _ in broker.removed} == {"a"}


async def test_it_happens_by_itself_a_while_after_the_start_and_once_a_day() -> None:
    broker, clock = FakeBroker(), ManualClock()
    task = asyncio.create_task(retention_of(broker, clock).run())
    await until(lambda: clock.wakes_within(FIRST_LOOK_SECONDS))
    assert broker.removed == []
    clock.advance(FIRST_LOOK_SECONDS)
    await until(lambda: clock.wakes_within(LOOK_SECONDS))
    assert len(broker.removed) == 9
    broker.removed.clear()
    clock.advance(LOOK_SECONDS)
    await until(lambda: len(broker.removed) == 9)
    task.cancel()


async def test_a_disk_that_fails_is_tried_again_the_next_day(caplog: pytest.LogCaptureFixture) -> None:
    broker, clock = FakeBroker(), ManualClock()
    broker.fails = True
    task = asyncio.create_task(retention_of(broker, clock).run())
    await until(lambda: clock.wakes_within(FIRST_LOOK_SECONDS))
    clock.advance(FIRST_LOOK_SECONDS)
    await until(lambda: clock.wakes_within(LOOK_SECONDS))
    assert "cannot be removed: the disk fails" in caplog.text
    broker.fails = False
    clock.advance(LOOK_SECONDS)
    await until(lambda: len(broker.removed) == 9)
    task.cancel()
