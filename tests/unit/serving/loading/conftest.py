"""A lifecycle for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.loading_bench import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        bench = Bench(tmp_path, lambda work, name: group.create_task(work, name=name))
        yield bench
    bench.close()
