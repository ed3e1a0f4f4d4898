from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiercel.trainer_agent.supervision import LockedError, Signal, Supervisor, is_locked, lock, run_until_first_ends


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


async def test_until_first_ends() -> None:
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def end() -> None:
        await asyncio.sleep(0)

    await run_until_first_ends(waits=wait(), ends=end())
    assert cancelled.is_set()


async def test_until_first_ends_tells_what_failed() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_until_first_ends(waits=wait(), fails=fail())


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


def test_a_lock_is_held_by_one_and_says_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    assert not is_locked(path)
    with lock(path):
        assert is_locked(path)
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(LockedError, match=rf"pid {os.getpid()} .*--state-dir") as caught, lock(path):
            pass
        assert caught.value.pid == os.getpid()
    assert not is_locked(path)
    with lock(path, "node-7"):
        assert path.read_text() == f"{os.getpid()} node-7\n"
        with pytest.raises(LockedError, match=f"pid {os.getpid()} "), lock(path):
            pass


def test_a_lock_ends_with_its_holder_and_is_not_inherited(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    script = (
        "import subprocess, sys, pathlib\n"
        "from tiercel.trainer_agent.supervision import lock\n"
        f"with lock(pathlib.Path({str(path)!r})):\n"
        "    child = subprocess.Popen(['sleep', '60'], close_fds=False, stdout=-3, stdin=-3)\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    assert is_locked(path)
    holder.kill()
    holder.communicate()
    try:
        assert not is_locked(path)
    finally:
        os.kill(child, 9)
