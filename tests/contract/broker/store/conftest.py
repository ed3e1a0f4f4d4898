from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from testing.memory_store import MemoryStore
from tiercel.broker.store.contract import Store
from tiercel.broker.store.sql import SqlStore, sqlite_url


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "broker.sqlite"


@pytest.fixture(params=["memory", "sqlite"])
def reopened(request: pytest.FixtureRequest, database: Path) -> Callable[[], Store]:
    """Makes a store over what an earlier one saved, as a broker does that was started again."""
    memory = MemoryStore()

    def make() -> Store:
        return memory if request.param == "memory" else SqlStore(sqlite_url(database))

    return make


@pytest.fixture
async def store(reopened: Callable[[], Store]) -> AsyncIterator[Store]:
    async with reopened() as store:
        yield store
