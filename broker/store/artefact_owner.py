"""By what name an artefact store knows the broker: in its database, and so the same on another machine."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from tiercel.broker.store import tables

if TYPE_CHECKING:
    from tiercel.broker.store.sql import Store


async def owner_name(store: Store) -> str:
    """The name, which is made where there is none."""
    query = select(tables.artefact_owner.c.name)
    async with store.reading() as connection:
        name = await connection.scalar(query)
    if name is None:
        name = secrets.token_hex(16)
        async with store.writing() as connection:
            await connection.execute(insert(tables.artefact_owner).values(id=1, name=name))
    return str(name)
