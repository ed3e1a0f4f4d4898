"""The demo when it cannot go well: it says so and leaves nothing running. 'make demo' shows that it goes well."""

from __future__ import annotations

import asyncio
import json
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
    folder = tmp_path / "demo-output"
    yield folder
    await asyncio.to_thread(kill_all, processes_of(folder))


async def start_demo(output: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.demo", "--output", str(output), "--results", str(output / "results")),
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"CI": "1"},
        start_new_session=True,
    )


async def end_of(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    async with asyncio.timeout(WAIT_SECONDS):
        output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


async def wait_line(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        while text not in (line := (await process.stdout.readline()).decode()):
            assert line, f"the demo ended without saying {text!r}"


async def test_too_little_time_is_an_exit_code_and_sentences_that_say_what_is_missing(output: Path) -> None:
    code, told, errors = await end_of(await start_demo(output, "--seconds-limit", "1"))
    assert code == 1
    assert "The jobs were not done after 1 s." in errors
    for name in ("Digits MLP", "MNIST GRU", "MNIST CNN", "MNIST VAE"):
        assert f"({name}) did not deliver" in errors
    assert "logs" in errors
    assert "Traceback" not in errors
    assert "0 of 12 tiers were delivered" in told
    report = json.loads((output / "demo-report.json").read_text())
    assert len(report["jobs"]) == 4
    assert (output / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "results" / "demo.json").exists()
    await until(lambda: not processes_of(output))  # what was killed may still be ending


async def test_two_in_one_folder_are_one_too_many_and_stopping_it_leaves_nothing_running(output: Path) -> None:
    first = await start_demo(output)
    await wait_line(first, "training and serving")
    code, _, errors = await end_of(await start_demo(output))
    assert code == 1
    assert errors.startswith("Error: Another demo runs in")
    assert first.returncode is None
    first.send_signal(signal.SIGTERM)
    code, _, errors = await end_of(first)
    assert code == 130
    assert "nothing is left running" in errors
    assert "Traceback" not in errors
    await until(lambda: not processes_of(output))  # what was killed may still be ending


async def test_an_unknown_policy_is_a_sentence(output: Path) -> None:
    code, _, errors = await end_of(await start_demo(output, "--policy", "magic"))
    assert code == 1
    assert "magic" in errors
    assert "up.log" in errors
    assert "Traceback" not in errors
    await until(lambda: not processes_of(output))  # what was killed may still be ending
