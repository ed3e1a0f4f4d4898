"""Which nodes are being emptied: in the broker's database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from tiercel.broker.store import tables
from tiercel.core.nodes import Drain

if TYPE_CHECKING:
    from tiercel.broker.store.sql import Store


class DrainStore:
    """Keeps what the operator asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> dict[str, Drain]:
        """The nodes that are being emptied, and how."""
        async with self._store.reading() as connection:
            rows = (await connection.execute(select(tables.drained_nodes))).all()
        return {row.node: Drain(row.drain) for row in rows}

    async def put(self, node: str, drain: Drain) -> None:
        """Keep that a node is being emptied, or (``Drain.NO``) forget it."""
        table = tables.drained_nodes
        async with self._store.writing() as connection:
            await connection.execute(delete(table).where(table.c.node == node))
            if drain is not Drain.NO:
                await connection.execute(insert(table).values(node=node, drain=drain.value))
