from __future__ import annotations

import asyncio

import pytest

from tiercel.trainer_agent.supervision import Background, Signal, Supervisor


async def test_an_error_in_one_task_ends_all() -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        raise ValueError("broken")

    async def run() -> None:
        async with Supervisor() as tasks:
            tasks.start("waits", wait())
            tasks.start("fails", fail())

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(ValueError, match="broken")
    assert ended.is_set()


async def test_leaving_by_an_error_does_not_wait_for_tasks_that_never_end() -> None:
    async def run() -> None:
        async with Supervisor() as tasks:
            tasks.start("waits", asyncio.Event().wait())  # type: ignore[arg-type]  # its result is of no interest
            raise ValueError("broken")

    with pytest.raises(ExceptionGroup):
        await run()


async def test_cancel_all_lets_the_block_end() -> None:
    async with Supervisor() as tasks:
        task = tasks.start("waits", asyncio.Event().wait())  # type: ignore[arg-type]  # its result is of no interest
        tasks.cancel_all()
    assert task.cancelled()


async def test_a_signal_wakes_everybody_once() -> None:
    signal = Signal()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await signal.wait()
        woken.append(number)

    async with Supervisor() as tasks:
        for number in range(3):
            tasks.start(f"waits {number}", wait(number))
        await asyncio.sleep(0)
        signal.fire()
    assert sorted(woken) == [0, 1, 2]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await signal.wait()


async def test_a_task_in_the_background_that_fails_ends_alone_and_closing_ends_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = Background()
    ended = []

    async def fail() -> None:
        raise ValueError("a defect")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    failing = background.start("what fails", fail())
    waiting = background.start("what waits", wait())
    await asyncio.wait([failing])
    assert not waiting.done()
    assert "what fails failed" in caplog.text
    await background.close()
    assert (waiting.cancelled(), ended) == (True, [True])
    await background.close()
