"""Actors over the real stores and a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.actors import Actors, running_actors
from testing.memory_store import MemoryStore
from testing.replica_nodes import ReplicaNodes, version_store
from tiercel.broker.store.contract import Store
from tiercel.broker.store.sql import SqlStore, sqlite_url


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Both stores: what holds over one must hold over the other."""
    made = MemoryStore() if request.param == "memory" else SqlStore(sqlite_url(tmp_path / "broker.sqlite"))
    async with made as opened:
        yield opened


@pytest.fixture
async def actors(store: Store) -> AsyncIterator[Actors]:
    async with running_actors(store) as running:
        yield running


@pytest.fixture
async def nodes(store: Store, tmp_path: Path) -> AsyncIterator[ReplicaNodes]:
    """Actors with the files of versions, and nodes to be made."""
    held = version_store(tmp_path)
    async with running_actors(store, versions=held) as started:
        yield ReplicaNodes(started, held)
