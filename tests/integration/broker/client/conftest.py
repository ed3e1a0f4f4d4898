"""A scripted broker in the test's own event loop, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from testing.jobs_service import QUICK, TOKEN, Script, serving
from tiercel import Client


@pytest.fixture
def script() -> Script:
    """What the broker says."""
    return Script()


@pytest.fixture
async def address(script: Script) -> AsyncIterator[str]:
    """Where it listens."""
    async with serving(script) as address:
        yield address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    """A client that has the right token."""
    async with Client(address, token=TOKEN, options=QUICK) as client:
        yield client
