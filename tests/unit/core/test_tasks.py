from __future__ import annotations

import asyncio
import threading

import pytest

from tiercel.core.tasks import run_in_thread, run_until_one_ends


async def test_the_first_to_end_ends_the_others() -> None:
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def end() -> None:
        await asyncio.sleep(0)

    await run_until_one_ends(waits=wait(), ends=end())
    assert cancelled.is_set()


async def test_the_first_failure_comes_out_as_it_is() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_until_one_ends(waits=wait(), fails=fail())


async def test_cancelling_ends_all_of_them() -> None:
    cancelled: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(number)

    call = asyncio.ensure_future(run_until_one_ends(one=work(1), two=work(2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert sorted(cancelled) == [1, 2]


async def test_whoever_is_cancelled_goes_on_once_the_thread_has_returned() -> None:
    go, returned = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(30)
        returned.set()
        raise ValueError("nobody hears of it")

    task = asyncio.create_task(run_in_thread(work))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert returned.is_set()
    assert await run_in_thread(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(divmod, 7, 0)
