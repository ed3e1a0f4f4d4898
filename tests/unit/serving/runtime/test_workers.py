from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tiercel.serving.runtime.workers import Workers


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


async def outcome(workers: Workers, work: object) -> object:
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    assert callable(work)
    workers.run(work, done.set_result)
    return await asyncio.wait_for(done, 90)


async def test_work_runs_in_another_thread_and_its_result_comes_back_to_the_loop(workers: Workers) -> None:
    here = threading.get_ident()
    done: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
    workers.run(threading.get_ident, lambda there: done.set_result((int(str(there)), threading.get_ident())))
    there, back = await asyncio.wait_for(done, 90)
    assert there != here
    assert back == here


async def test_what_work_raises_is_its_result(workers: Workers) -> None:
    def fail() -> None:
        raise ValueError("no")

    assert isinstance(await outcome(workers, fail), ValueError)
    assert await outcome(workers, lambda: 7) == 7  # the worker lives on


async def test_a_busy_worker_is_not_idle_and_work_beyond_them_is_refused(workers: Workers) -> None:
    go = threading.Event()
    ended: asyncio.Queue[object] = asyncio.Queue()
    assert workers.idle == 2
    for left in (1, 0):
        workers.run(go.wait, ended.put_nowait)
        assert workers.idle == left
    before = workers.may_run_ahead
    workers.run(go.wait, ended.put_nowait)  # one ahead
    assert (before, workers.may_run_ahead) == (True, False)
    with pytest.raises(RuntimeError, match="idle"):
        workers.run(go.wait, ended.put_nowait)
    go.set()
    for _ in range(3):
        assert await asyncio.wait_for(ended.get(), 90) is True
    assert workers.idle == 2


async def test_a_failing_follow_up_does_not_stop_the_others(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise ValueError("no")

    workers.run(lambda: None, fail)
    for _ in range(3):  # more than there are workers
        assert await outcome(workers, lambda: 1) == 1
    assert workers.idle == 2
    assert "failed" in caplog.text


async def test_nothing_comes_back_after_closing() -> None:
    workers = Workers(1)
    go, ended = threading.Event(), threading.Event()
    results: list[object] = []

    def work() -> None:
        go.wait()
        ended.set()

    workers.run(work, results.append)
    workers.close()
    go.set()
    assert await asyncio.to_thread(ended.wait, 30)
    for _ in range(5):
        await asyncio.sleep(0)
    assert results == []
    with pytest.raises(RuntimeError):
        workers.run(work, results.append)
