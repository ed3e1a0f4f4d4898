"""Runs that are forked from templates, in real processes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testing.warm_node import WarmNode, warm_node
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.limits.detect import detect


@pytest.fixture
def limits() -> Iterator[Limits]:
    limits = detect(f"warm-{os.getpid()}", 2.0)
    yield limits
    limits.close()


@pytest.fixture
async def node(limits: Limits, tmp_path: Path) -> AsyncIterator[WarmNode]:
    async with warm_node(tmp_path, limits) as node:
        yield node
