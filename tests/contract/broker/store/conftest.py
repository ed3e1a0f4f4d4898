from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tiercel.broker.store.sql import Store, sqlite_url


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "broker.sqlite"


@pytest.fixture
def reopened(database: Path) -> Callable[[], Store]:
    """Makes a store over what an earlier one saved, as a broker does that was started again."""
    return lambda: Store(sqlite_url(database))


@pytest.fixture
async def store(reopened: Callable[[], Store]) -> AsyncIterator[Store]:
    async with reopened() as store:
        yield store
