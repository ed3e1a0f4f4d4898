"""The product's part of ``make gpu-check``, on the CPU: two jobs and a served model under a policy."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.product import kill_all, processes_of

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

WAIT_SECONDS = 800.0


@pytest.fixture
async def output(tmp_path: Path) -> AsyncIterator[Path]:
    folder = tmp_path / "gpu-check"
    yield folder
    await asyncio.to_thread(kill_all, processes_of(folder))


async def test_every_tier_is_delivered_beside_a_served_model(output: Path) -> None:
    options = ("--device", "cpu", "--quick", "--json", "--minutes", "12", "--only", "product", "--output", str(output))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.gpu_check", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        told, errors = await process.communicate()
    rows = {row["what"]: row for row in json.loads(told)["rows"]}
    assert process.returncode == 0, (told, errors)
    for name in ("product: a job alone", "utility: two jobs"):
        assert float(rows[f"{name}: to the last tier"]["value"].split()[0]) > 0
    assert rows["utility: served beside two jobs: in objective"]["verdict"] in ("holds", "MISSED")
    assert processes_of(output) == []
