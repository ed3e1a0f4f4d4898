"""What tenants may use, where the operator set that: in the broker's database."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from tiercel.broker.store import tables
from tiercel.core.quotas import Allowance

if TYPE_CHECKING:
    from tiercel.broker.store.sql import Store


class QuotaStore:
    """Keeps what the operator set."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> dict[str, Allowance]:
        """What each tenant may use of whom that was set."""
        async with self._store.reading() as connection:
            rows = (await connection.execute(select(tables.quotas))).all()
        return {
            row.tenant: Allowance(row.max_active_jobs, row.max_core_hours, row.max_accelerator_hours) for row in rows
        }

    async def put(self, tenant: str, allowance: Allowance | None) -> None:
        """Keep what a tenant may use, or (None) that nothing is set."""
        table = tables.quotas
        async with self._store.writing() as connection:
            await connection.execute(delete(table).where(table.c.tenant == tenant))
            if allowance is not None:
                await connection.execute(insert(table).values(tenant=tenant, **asdict(allowance)))
