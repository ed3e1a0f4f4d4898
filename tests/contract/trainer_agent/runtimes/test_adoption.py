"""What every runtime has to do with runs that an earlier life of the agent started."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from pathlib import Path

import pytest

from testing.run_handles import Start, command_of, finish, ready
from testing.until import until
from tiercel.trainer_agent.fence.fence import since_boot
from tiercel.trainer_agent.fence.keeper import Containers, Runs, Scripts, keep
from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.runtimes.contract import Launch, Program, RunHandle, Runtime

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image


def launch_of(run_id: str, folder: Path) -> Launch:
    return Launch(run_id=run_id, job_folder=folder, program=Program(script="train.py"), memory_bytes=1 << 30)


async def test_a_later_life_of_the_agent_goes_on_with_a_run(start: Start, next_life: Runtime, tmp_path: Path) -> None:
    script = """
import os, time
os.write(1, b'ready\\n')
while not os.path.exists('on'): sum(range(10_000))
print('more', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('done', flush=True)
raise SystemExit(7)
"""
    run = await start(script, run_id="adopted")
    position = await _read_until(run, b"ready\n")
    work = tmp_path / "jobs" / "job" / "work"
    await run.apply_share(CpuShare(0.25, 0.5))
    before, pids = await run.usage(), run.pids()
    again = await next_life.adopt(launch_of("adopted", tmp_path / "jobs" / "job"))
    assert again is not None
    await next_life.remove_leftovers({"adopted"})
    assert set(again.pids()) == set(pids)
    assert (await again.usage()).cpu_seconds >= before.cpu_seconds
    (work / "on").touch()
    rest = asyncio.create_task(_read_from(again, position))
    await again.apply_share(CpuShare(1.0))
    (work / "go").touch()
    async with asyncio.timeout(60):
        assert (await again.wait()).code == 7
        assert await rest == b"more\ndone\n"
    await again.close()
    assert await next_life.adopt(launch_of("adopted", tmp_path / "jobs" / "job")) is None


async def test_output_goes_on_where_it_was_however_much_of_it_there_was(
    start: Start, next_life: Runtime, tmp_path: Path
) -> None:
    """More than an engine keeps."""
    script = """
import os, sys, time
for number in range(24): sys.stdout.write(f'{number:01023}\\n' * 1024)
print('ready', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('more', flush=True)
"""
    run = await start(script, run_id="talks")
    position = await _read_until(run, b"ready\n")
    again = await next_life.adopt(launch_of("talks", tmp_path / "jobs" / "job"))
    assert again is not None
    rest = asyncio.create_task(_read_from(again, position))
    (tmp_path / "jobs" / "job" / "work" / "go").touch()
    async with asyncio.timeout(60):
        assert (await again.wait()).code == 0
        assert await rest == b"more\n"
    await again.close()


async def _read_until(run: RunHandle, line: bytes) -> str:
    """Read what comes before a line, and the line; the position behind it."""
    end = b""
    async with asyncio.timeout(60), aclosing(run.output()) as output:  # type: ignore[type-var]  # it is a generator
        async for chunk in output:
            end = (end + chunk.data)[-len(line) :]  # it may come in two pieces
            if end == line:
                return chunk.position
    raise AssertionError(f"the run ended before it said {line!r}")


async def _read_from(run: RunHandle, position: str) -> bytes:
    return b"".join([chunk.data async for chunk in run.output(position)])


async def test_a_run_that_ended_while_no_agent_was_there_tells_its_exit_code(
    start: Start, next_life: Runtime, tmp_path: Path
) -> None:
    run = await start("print('last words', flush=True)\nraise SystemExit(5)", run_id="over")
    await run.wait()
    again = await next_life.adopt(launch_of("over", tmp_path / "jobs" / "job"))
    assert again is not None
    assert await finish(again) == (5, "last words\n")


async def test_a_later_life_stops_a_run_with_all_its_children(start: Start, next_life: Runtime, tmp_path: Path) -> None:
    script = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0: os.setsid()
os.write(1, b'ready\\n')
time.sleep(600)
"""
    run = await start(script, run_id="stopped")
    _, reading = await ready(run)
    reading.cancel()
    await until(lambda: len(run.pids()) >= 2)
    pids = run.pids()
    again = await next_life.adopt(launch_of("stopped", tmp_path / "jobs" / "job"))
    assert again is not None
    async with asyncio.timeout(90):
        await again.stop(0.3)
        assert (await again.wait()).code == -9
    await again.close()
    await until(lambda: not any(command_of(pid) for pid in pids))


async def test_what_a_dead_agent_left_is_ended_in_its_place_when_its_fence_falls(
    start: Start, runtime: Runtime, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    script = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'asked\\n'))
if os.fork() == 0: os.setsid()
os.write(1, b'ready\\n')
while True: time.sleep(600)
"""
    run = await start(script, run_id="orphan")
    words, reading = await ready(run)
    await until(lambda: len(run.pids()) >= 2)
    pids = run.pids()
    (tmp_path / "agent.lock").write_text("1 contract\n")
    promise = {"stop_after_seconds": 0.0, "end_after_seconds": 2.0, "contact_at": since_boot()}
    (tmp_path / "fence.json").write_text(json.dumps(promise))
    if runtime.name == "process":
        left: Runs = Scripts(tmp_path / "minders")
    else:
        left = Containers(request.getfixturevalue("engine").host, f"contract-{os.getpid()}")
    await asyncio.to_thread(keep, tmp_path, 1, [left])
    async with asyncio.timeout(90):
        assert (await run.wait()).code == -9
        await reading
    assert b"asked" in b"".join(words)
    await until(lambda: not any(command_of(pid) for pid in pids))
    await run.close()


async def test_what_nobody_goes_on_with_is_ended(start: Start, next_life: Runtime, tmp_path: Path) -> None:
    run = await start("print('ready', flush=True)\nimport time; time.sleep(600)", run_id="leftover")
    _, reading = await ready(run)
    pids = run.pids()
    await next_life.remove_leftovers(())
    async with asyncio.timeout(90):
        await reading
        assert (await run.wait()).code == -9
    assert await next_life.adopt(launch_of("leftover", tmp_path / "jobs" / "job")) is None
    assert not any(command_of(pid) for pid in pids)
    await run.close()
