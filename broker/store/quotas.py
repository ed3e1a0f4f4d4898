"""How many unfinished jobs tenants may have, where the operator set that: in the broker's database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from tiercel.broker.store import tables

if TYPE_CHECKING:
    from tiercel.broker.store.sql import SqlStore


class QuotaStore:
    """Keeps what the operator set."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    async def load(self) -> dict[str, int]:
        """How many unfinished jobs each tenant may have of whom that was set."""
        async with self._store.reading() as connection:
            rows = (await connection.execute(select(tables.quotas))).all()
        return {row.tenant: row.max_active_jobs for row in rows}

    async def put(self, tenant: str, max_active_jobs: int | None) -> None:
        """Keep how many a tenant may have, or (None) that nothing is set."""
        table = tables.quotas
        async with self._store.writing() as connection:
            await connection.execute(delete(table).where(table.c.tenant == tenant))
            if max_active_jobs is not None:
                await connection.execute(insert(table).values(tenant=tenant, max_active_jobs=max_active_jobs))
