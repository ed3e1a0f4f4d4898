"""Which projects the artefact store has, so that whoever makes a broker of a copy of the database finds them."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import and_, delete, insert, or_, select

from tiercel.broker.store import tables
from tiercel.core.blobs import is_sha256
from tiercel.core.checkpoints import Artefact
from tiercel.core.tenants import is_tenant_name

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from sqlalchemy import ColumnElement

    from tiercel.broker.store.sql import Store

_TABLE = tables.stored_projects


class ProjectKey(NamedTuple):
    """A tenant's project."""

    tenant: str  # whose
    root: str  # SHA-256 of its root folder's listing, hexadecimal


class StoredProjects:
    """Keeps which artefact each stored project is.

    Args:
        store: The database.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> dict[ProjectKey, Artefact]:
        """All of them."""
        async with self._store.reading() as connection:
            rows = (await connection.execute(select(_TABLE))).all()
        return {ProjectKey(row.tenant, row.root): Artefact(row.sha256, row.size_bytes) for row in rows}

    async def add(self, key: ProjectKey, artefact: Artefact) -> None:
        """Note that a project is stored, in place of what was noted of it.

        Raises:
            CannotWriteError: It cannot be noted.
        """
        async with self._store.writing() as connection:
            await connection.execute(delete(_TABLE).where(_is(key)))
            row = {"sha256": artefact.sha256, "size_bytes": artefact.size_bytes}
            await connection.execute(insert(_TABLE).values(key._asdict() | row))

    async def remove(self, keys: Collection[ProjectKey]) -> None:
        """Forget projects; raises as :meth:`add` does."""
        async with self._store.writing() as connection:
            await connection.execute(delete(_TABLE).where(or_(*map(_is, keys))))


def stored_projects_in(database: Path) -> dict[ProjectKey, Artefact]:
    """The same, of a database that nobody has open; none of one that is of an earlier version.

    Raises:
        sqlite3.Error: It cannot be read.
    """
    with contextlib.closing(sqlite3.connect(database)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [_TABLE.name]).fetchone():
            return {}
        rows = connection.execute(f"SELECT tenant, root, sha256, size_bytes FROM {_TABLE.name}").fetchall()  # noqa: S608
    return {
        ProjectKey(str(tenant), str(root)): Artefact(str(sha256), int(size))
        for tenant, root, sha256, size in rows
        if is_tenant_name(str(tenant)) and is_sha256(str(sha256)) and int(size) > 0
    }


def _is(key: ProjectKey) -> ColumnElement[bool]:
    return and_(_TABLE.c.tenant == key.tenant, _TABLE.c.root == key.root)
