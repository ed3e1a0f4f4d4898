"""What is told to browsers: each of a tenant's all of it once, or that all is to be asked anew."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from testing.until import until
from tiercel.broker.dashboard import stream
from tiercel.broker.dashboard.stream import Publisher
from tiercel.core.errors import OverloadedError
from tiercel.core.events import JobEvent, StateChanged
from tiercel.core.jobs import JobState


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def events_in(text: bytes) -> list[tuple[str, str]]:
    """The events of a piece, each its id and its kind."""
    blocks = [dict(line.split(b": ", 1) for line in block.split(b"\n")) for block in text.split(b"\n\n") if block]
    return [(block[b"id"].decode(), block[b"event"].decode()) for block in blocks if b"event" in block]


async def next_events(pieces: AsyncGenerator[bytes]) -> list[tuple[str, str]]:
    async with asyncio.timeout(90):
        async for piece in pieces:
            if found := events_in(piece):
                return found
    return []


async def test_a_browser_that_comes_back_goes_on_where_it_was() -> None:
    publisher = Publisher(Time())
    async with contextlib.aclosing(publisher.follow("alice", "")) as pieces:
        assert await anext(pieces) == b"retry: 500\n\n"
        for kind in ("state", "share", "tier"):
            publisher.tell("alice", kind, {})
            publisher.tell("bob", kind, {"secret": True})
        first = await next_events(pieces)
    assert [kind for _, kind in first] == ["state", "share", "tier"]
    publisher.tell("alice", "state", {})
    async with contextlib.aclosing(publisher.follow("alice", first[0][0])) as pieces:
        assert [kind for _, kind in await next_events(pieces)] == ["share", "tier", "state"]
    for unknown in ("0000aaaa-1", "nonsense", first[0][0] + "0" * 30, first[0][0].replace("-1", "-99")):
        async with contextlib.aclosing(publisher.follow("alice", unknown)) as pieces:
            assert [kind for _, kind in await next_events(pieces)] == ["reset"]


@pytest.mark.parametrize(("bound", "most"), [("RING_EVENTS", 10), ("RING_BYTES", 20)])
async def test_one_that_is_slower_than_what_happens_is_let_go_and_begins_anew(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(stream, bound, most)
    publisher = Publisher(Time())
    async with contextlib.aclosing(publisher.follow("alice", "")) as pieces:
        await anext(pieces)
        publisher.tell("alice", "state", {})
        ((seen, _),) = await next_events(pieces)
        for _ in range(11):
            publisher.tell("alice", "state", {})
        assert await next_events(pieces) == []
    async with contextlib.aclosing(publisher.follow("alice", seen)) as pieces:
        assert [kind for _, kind in await next_events(pieces)] == ["reset"]


@contextlib.asynccontextmanager
async def looking(publisher: Publisher, lists: dict[str, Any], jobs: list[str]) -> AsyncIterator[None]:
    async def lists_of(_: str) -> dict[str, Any]:
        return dict(lists)

    async def job_now(tenant: str, job_id: str) -> Any:
        jobs.append(f"{tenant}/{job_id}")
        return {"id": job_id}

    task = asyncio.create_task(publisher.run(lists_of, job_now))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_changes_of_a_job_are_told_together_and_lists_where_they_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(stream, "LISTS_SECONDS", 0.0)
    publisher, lists, jobs = Publisher(Time()), {"nodes": [1]}, list[str]()
    async with contextlib.aclosing(publisher.follow("alice", "")) as pieces, looking(publisher, lists, jobs):
        await anext(pieces)
        assert [kind for _, kind in await next_events(pieces)] == ["nodes"]
        for sequence in range(5):
            publisher.publish_nowait(JobEvent(sequence, "j1", "alice", 1.0, StateChanged(JobState.RUNNING, "")))
            publisher.publish_nowait(JobEvent(sequence, "j2", "bob", 1.0, StateChanged(JobState.RUNNING, "")))
        told = [kind for _, kind in await next_events(pieces)]
        while "job" not in told:
            told += [kind for _, kind in await next_events(pieces)]
        assert (told.count("state"), told.count("job"), jobs) == (5, 1, ["alice/j1"])
        lists["nodes"] = [2]
        assert [kind for _, kind in await next_events(pieces)] == ["nodes"]


async def test_a_ring_goes_a_while_after_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "TICK_SECONDS", 0.01)
    time, jobs = Time(), list[str]()
    publisher = Publisher(time)
    async with contextlib.aclosing(publisher.follow("alice", "")) as pieces:
        await anext(pieces)
        publisher.tell("alice", "state", {})
        ((seen, _),) = await next_events(pieces)
    async with looking(publisher, {}, jobs):
        time.now = stream.KEEP_SECONDS + 1
        await until(lambda: not publisher._rings)
    async with contextlib.aclosing(publisher.follow("alice", seen)) as pieces:
        assert [kind for _, kind in await next_events(pieces)] == ["reset"]


async def test_there_are_so_many_streams_and_all_end_with_the_broker() -> None:
    publisher = Publisher(Time())
    async with contextlib.AsyncExitStack() as stack:
        followed = [publisher.follow("alice", "") for _ in range(stream.MOST_STREAMS_OF_A_TENANT)]
        for pieces in followed:
            await anext(await stack.enter_async_context(contextlib.aclosing(pieces)))
        with pytest.raises(OverloadedError):
            await anext(publisher.follow("alice", ""))
        assert publisher.streams == stream.MOST_STREAMS_OF_A_TENANT
        publisher.close()
        for pieces in followed:
            assert [piece async for piece in pieces] == []
    assert publisher.streams == 0
