"""The policy that the operator set: in the broker's database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from tiercel.broker.store import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.store.sql import Store


class PolicyStore:
    """Keeps the name of one policy, and its options."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> tuple[str, dict[str, str]] | None:
        """The policy that was set last, with its options; None if none was."""
        async with self._store.reading() as connection:
            row = (await connection.execute(select(tables.policy))).one_or_none()
        return None if row is None else (row.name, json.loads(row.options))

    async def put(self, name: str, options: Mapping[str, str]) -> None:
        """Keep another one in its place."""
        async with self._store.writing() as connection:
            await connection.execute(delete(tables.policy))
            await connection.execute(insert(tables.policy).values(id=1, name=name, options=json.dumps(dict(options))))
