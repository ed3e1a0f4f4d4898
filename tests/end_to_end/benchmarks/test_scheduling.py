"""The live experiments when they cannot go well: they say so and leave nothing running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.product import kill_all, processes_of
from testing.until import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

WAIT_SECONDS = 120.0


@pytest.fixture
async def output(tmp_path: Path) -> AsyncIterator[Path]:
    folder = tmp_path / "runs"
    yield folder
    await asyncio.to_thread(kill_all, processes_of(folder))


async def start(output: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.scheduling", "run", "--quick", "--output", str(output)),
        *("--results", str(output / "results"), *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"CI": "1"},
        start_new_session=True,
    )


async def end_of(process: asyncio.subprocess.Process) -> tuple[int, str]:
    async with asyncio.timeout(WAIT_SECONDS):
        output, errors = await process.communicate()
    return process.returncode or 0, output.decode() + errors.decode()


async def test_stopping_it_in_the_middle_leaves_nothing_running(output: Path) -> None:
    process = await start(output, "--arm", "fair")
    async with asyncio.timeout(WAIT_SECONDS):
        while not (output / "product" / "state" / "logs").is_dir():
            assert process.returncode is None
            await asyncio.sleep(0.1)
    process.send_signal(signal.SIGINT)
    code, told = await end_of(process)
    assert code == 130
    assert "finished runs are kept" in told
    assert "Traceback" not in told
    await until(lambda: not processes_of(output))  # what was killed may still be ending
    assert list(output.glob("*.json")) == []
