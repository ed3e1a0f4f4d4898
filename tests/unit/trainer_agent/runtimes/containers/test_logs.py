"""A container's output as the engine sends it: each line once, and what it said while it waited never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, cast

import pytest

from tiercel.trainer_agent.runtimes.containers.logs import ContainerLog
from tiercel.trainer_agent.runtimes.containers.waiting import LEFT_OUT
from tiercel.trainer_agent.runtimes.warm.script import ENTERED

OUTPUT, ERRORS = 1, 2
READY = LEFT_OUT + b"{}}\n"


class FakeEngine:
    """Sends what it has of frames from a time on; they are (stream, nanoseconds, line)."""

    def __init__(self, *frames: tuple[int, int, bytes], stuck_after: int = 0) -> None:
        self.frames = frames
        self.stuck_after = stuck_after
        self.asked: list[str] = []

    @asynccontextmanager
    async def _query(self, path: str, *, params: dict[str, str], **_: Any) -> AsyncIterator[Any]:
        self.asked.append(params["since"])
        since = round(float(params["since"]) * 1e9)
        content = asyncio.StreamReader()
        is_stuck = self.stuck_after and len(self.asked) == 1
        for stream, at, line in self.frames[: self.stuck_after] if is_stuck else self.frames:
            if at >= since:
                data = b"1970-01-01T00:00:00.%09dZ " % at + line
                content.feed_data(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data)
        if not is_stuck:
            content.feed_eof()
        yield Response(content)


class Response:
    def __init__(self, content: asyncio.StreamReader) -> None:
        self.content = content

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


def log_of(engine: FakeEngine, position: str = "", *, waited: bool = False, looks: int = 1) -> ContainerLog:
    running = [True] * looks

    async def is_running() -> bool:
        return bool(running and running.pop())

    return ContainerLog(cast("Any", engine), "0123", is_running, position, waited=waited)


async def lines(log: ContainerLog) -> list[bytes]:
    return [chunk.data async for chunk in log.chunks()]


async def test_what_is_logged_late_is_no_reason_to_have_what_came_behind_it_twice() -> None:
    engine = FakeEngine((OUTPUT, 5, b"second\n"), (ERRORS, 3, b"first\n"))
    assert await lines(log_of(engine)) == [b"second\n", b"first\n"]
    assert engine.asked == ["0", "0.000000006"]
    assert await lines(log_of(engine, "0.000000004")) == [b"second\n"]


@pytest.mark.parametrize(("file_bytes", "asked"), [(50, ["0", "0.000000003", "0.000000004"]), (1_000, ["0"])])
async def test_an_engine_that_falls_silent_is_asked_again_only_where_it_may_have_lost_its_place(
    file_bytes: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiercel.trainer_agent.runtimes.containers.logs._SILENT_SECONDS", 0.0)
    monkeypatch.setattr("tiercel.trainer_agent.runtimes.containers.logs.LOG_FILE_BYTES", file_bytes)
    engine = FakeEngine((OUTPUT, 1, b"first\n"), (OUTPUT, 2, b"second\n"), (OUTPUT, 3, b"third\n"), stuck_after=2)
    found: list[bytes] = []

    async def follow() -> None:
        async for chunk in log_of(engine, looks=2).chunks():
            found.append(chunk.data)  # noqa: PERF401 - a comprehension would show nothing before the end

    following = asyncio.create_task(follow())
    for _ in range(100):
        await asyncio.sleep(0)
    assert engine.asked == asked
    assert found == [b"first\n", b"second\n", b"third\n"][: 2 if len(asked) == 1 else 3]
    following.cancel()
    await asyncio.wait([following])


async def test_what_a_container_said_while_it_waited_is_none_of_its_output() -> None:
    """And the engine may log the first line of errors before the last word on the output."""
    engine = FakeEngine(
        (OUTPUT, 1, READY),
        (ERRORS, 2, ENTERED),
        (ERRORS, 4, b"of errors\n"),
        (OUTPUT, 3, ENTERED),
        (OUTPUT, 5, ENTERED),  # as the script says it
    )
    assert await lines(log_of(engine, waited=True)) == [b"of errors\n", ENTERED]
    assert len(await lines(log_of(engine))) == 5
    assert await lines(log_of(engine, "0.000000005", waited=True)) == [ENTERED]


@pytest.mark.parametrize(
    ("frames", "has_begun"),
    [
        ((), False),
        (((OUTPUT, 1, READY),), False),
        (((OUTPUT, 1, READY), (ERRORS, 2, ENTERED)), False),
        (((OUTPUT, 1, READY), (ERRORS, 2, ENTERED), (OUTPUT, 3, ENTERED)), True),
        (((OUTPUT, 9, b"the engine keeps the newest only\n"),), True),
        (((ERRORS, 9, b"the engine keeps the newest only\n"),), True),
    ],
)
async def test_whether_a_container_has_become_its_run(
    frames: tuple[tuple[int, int, bytes], ...], has_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiercel.trainer_agent.runtimes.containers.logs._RETRY_SECONDS", 0.0)
    assert await log_of(FakeEngine(*frames), waited=True).has_begun() is has_begun
