"""Actors over the real store and a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.actors import Actors, running_actors
from testing.replica_nodes import ReplicaNodes, version_store
from tiercel.broker.store.sql import Store, sqlite_url


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as opened:
        yield opened


@pytest.fixture
async def actors(store: Store) -> AsyncIterator[Actors]:
    async with running_actors(store) as running:
        yield running


@pytest.fixture
async def nodes(store: Store, tmp_path: Path) -> AsyncIterator[ReplicaNodes]:
    """Actors with the files of versions, and nodes to be made."""
    async with running_actors(store, versions=version_store(tmp_path)) as started:
        yield ReplicaNodes(started)
