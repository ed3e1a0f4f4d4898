"""The one place that starts tasks."""

from __future__ import annotations

import asyncio

import pytest

from tiercel.broker.actors.supervisor import Supervisor


async def forever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise ValueError("broken")


async def test_leaving_ends_every_task() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await forever()
        finally:
            ended.append("work")

    async with Supervisor() as supervisor:
        supervisor.start(work(), name="work")
        await asyncio.sleep(0)
        supervisor.start(work(), name="never began")
    assert ended == ["work"]


async def test_an_error_inside_comes_out_as_it_is() -> None:
    async def run() -> None:
        async with Supervisor() as supervisor:
            supervisor.start(forever(), name="forever")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await run()


async def test_a_failure_is_told_and_leaves_the_others_alone() -> None:
    async with Supervisor() as supervisor:
        other = asyncio.Event()

        async def later() -> None:
            await asyncio.sleep(0)
            other.set()

        supervisor.start(fail(), name="fail")
        supervisor.start(later(), name="later")
        error = await supervisor.wait_failed()
        assert str(error) == "broken"
        await other.wait()


async def test_what_is_seen_through_outlives_its_caller() -> None:
    gate, done = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        await gate.wait()
        done.set()
        return 7

    async with Supervisor() as supervisor:
        call = asyncio.ensure_future(supervisor.shield(work(), name="work"))
        await asyncio.sleep(0)
        call.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        await done.wait()
        assert await supervisor.shield(work(), name="work") == 7


async def test_what_is_seen_through_may_fail() -> None:
    async with Supervisor() as supervisor:
        with pytest.raises(ValueError, match="broken"):
            await supervisor.shield(fail(), name="fail")
        abandoned = asyncio.ensure_future(supervisor.shield(fail(), name="fail"))
        await asyncio.sleep(0)
        abandoned.cancel()
        with pytest.raises((asyncio.CancelledError, ValueError)):
            await abandoned


async def test_a_task_that_an_error_made_forget_its_cancellation_is_ended_all_the_same() -> None:
    cancellations = 0

    async def forgetful() -> None:
        nonlocal cancellations
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancellations += 1
                if cancellations > 1:
                    raise

    async with asyncio.timeout(90):
        async with Supervisor(cancel_again_seconds=0.01) as supervisor:
            supervisor.start(forgetful(), name="forgetful")
            await asyncio.sleep(0)
    assert cancellations == 2
