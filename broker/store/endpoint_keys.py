"""Keys of endpoints in the broker's database: what is kept of one is enough to know it again, and not to tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from tiercel.broker.lifecycle.access import KeptKey
from tiercel.broker.store import tables
from tiercel.core.endpoint_access import Key

if TYPE_CHECKING:
    from tiercel.broker.store.sql import Store

_TABLE = tables.endpoint_keys


class KeyStore:
    """Keeps keys."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> list[KeptKey]:
        """All keys."""
        async with self._store.reading() as connection:
            rows = (await connection.execute(select(_TABLE))).all()
        return [
            KeptKey(
                Key(row.id, row.endpoint, row.name, row.per_second, row.created_at, row.expires_at),
                row.tenant,
                row.sha256,
            )
            for row in rows
        ]

    async def add(self, kept: KeptKey) -> None:
        """Keep a key."""
        key = kept.key
        values = {
            "id": key.id,
            "endpoint": key.endpoint,
            "tenant": kept.tenant,
            "name": key.name,
            "sha256": kept.sha256,
            "per_second": key.per_second,
            "created_at": key.created_at,
            "expires_at": key.expires_at,
        }
        async with self._store.writing() as connection:
            await connection.execute(insert(_TABLE).values(values))

    async def remove(self, *key_ids: str) -> None:
        """Forget keys."""
        async with self._store.writing() as connection:
            await connection.execute(delete(_TABLE).where(_TABLE.c.id.in_(key_ids)))
