"""Who is signed in at the dashboard, in the broker's database: nothing there signs anybody in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import delete, insert, select

from tiercel.broker.store import tables

if TYPE_CHECKING:
    from collections.abc import Collection

    from tiercel.broker.store.sql import Store

_TABLE = tables.sessions


class KeptSession(NamedTuple):
    """What is kept of a session."""

    sha256: str  # of the name that its browser has, hexadecimal
    sealed: bytes  # the token that it stands for, encrypted
    ends_at: float  # seconds since the Unix epoch


class SessionStore:
    """Keeps sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> list[KeptSession]:
        """All of them, those that end first coming first."""
        async with self._store.reading() as connection:
            rows = (await connection.execute(select(_TABLE).order_by(_TABLE.c.ends_at))).all()
        return [KeptSession(*row) for row in rows]

    async def add(self, session: KeptSession, gone: Collection[str]) -> None:
        """Keep a session, and forget others by their hashes.

        Raises:
            CannotWriteError: It cannot be kept.
        """
        async with self._store.writing() as connection:
            await connection.execute(delete(_TABLE).where(_TABLE.c.sha256.in_(gone)))
            await connection.execute(insert(_TABLE).values(session._asdict()))

    async def remove(self, sha256: str) -> None:
        """Forget a session."""
        async with self._store.writing() as connection:
            await connection.execute(delete(_TABLE).where(_TABLE.c.sha256 == sha256))
