"""Tokens that were given out, without their secrets: in the broker's database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from tiercel.broker.store import tables
from tiercel.core.issued_tokens import IssuedToken
from tiercel.core.roles import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.store.sql import Store

_TOKENS = tables.access_tokens


class TokenStore:
    """Keeps tokens."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> list[IssuedToken]:
        """All of them by the time they were made."""
        query = select(_TOKENS).order_by(_TOKENS.c.created_at, _TOKENS.c.id)
        async with self._store.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [IssuedToken(**{**row, "role": Role(row["role"])}) for row in rows]

    async def add(self, token: IssuedToken, forgotten: Sequence[str]) -> None:
        """Keep a token, and forget some others."""
        row = {column.name: getattr(token, column.name) for column in _TOKENS.columns}
        async with self._store.writing() as connection:
            if forgotten:
                await connection.execute(delete(_TOKENS).where(_TOKENS.c.id.in_(forgotten)))
            await connection.execute(insert(_TOKENS).values({**row, "role": token.role.value}))

    async def revoke(self, token_id: str, at: float) -> None:
        """Note when a token was taken back, unless it was before."""
        mark = update(_TOKENS).where(_TOKENS.c.id == token_id, _TOKENS.c.revoked_at.is_(None)).values(revoked_at=at)
        async with self._store.writing() as connection:
            await connection.execute(mark)
