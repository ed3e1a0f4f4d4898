"""The record of who changed what, in the broker's database: rows are added, and the oldest fold up into one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from tiercel.broker.store import tables
from tiercel.broker.store.sql import put
from tiercel.core.audit import BEGUN, AuditRow, AuditStart, digest_of
from tiercel.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from tiercel.broker.store.sql import Store

_ROWS = tables.audit_rows
_START = tables.audit_start
MOST_ROWS = 200_000
"""About 60 MB."""
_FOLDED_AT_A_TIME = 10_000


class AuditStore:
    """Keeps the rows.

    Args:
        most_rows: How many are kept; beyond it the oldest of them are gone, but for the hash of the last.
    """

    def __init__(self, store: Store, most_rows: int = MOST_ROWS) -> None:
        self._store = store
        self._most = most_rows
        self._folded = min(_FOLDED_AT_A_TIME, most_rows // 2)

    async def last(self) -> AuditRow | None:
        """The newest row."""
        query = select(_ROWS).order_by(_ROWS.c.number.desc()).limit(1)
        async with self._store.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else AuditRow(**row)

    async def start(self) -> AuditStart:
        """Where the rows begin."""
        async with self._store.reading() as connection:
            return await _start(connection)

    async def page(self, after: int, since: float, limit: int) -> list[AuditRow]:
        """Rows after one of a number, and not before a time, oldest first."""
        query = select(_ROWS).where(_ROWS.c.number > after, _ROWS.c.at >= since).order_by(_ROWS.c.number).limit(limit)
        async with self._store.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [AuditRow(**row) for row in rows]

    async def latest(self, before: int, limit: int) -> tuple[list[AuditRow], set[int]]:
        """The last rows before one of a number, 0 for the last of all, oldest first.

        Returns:
            The rows; and of those that begin a call, the numbers of those whose end comes after all of them.
        """
        newest = select(_ROWS).order_by(_ROWS.c.number.desc()).limit(limit)
        async with self._store.reading() as connection:
            found = await connection.execute(newest.where(_ROWS.c.number < before) if before else newest)
            rows = [AuditRow(**row) for row in reversed(found.mappings().all())]
            begun = {row.number for row in rows if row.outcome == BEGUN} - {row.call for row in rows}
            later = select(_ROWS.c.call).where(_ROWS.c.call.in_(begun))
            ended = set((await connection.scalars(later)).all()) if begun and before else set()
        return rows, ended

    async def append(self, rows: Sequence[AuditRow]) -> None:
        """Add rows, all or none; the oldest make room where there are too many.

        Raises:
            CannotWriteError: They cannot be kept.
            UnavailableError: It is not known whether they are, or others have taken their numbers.
        """
        try:
            await self._append(rows)
        except IntegrityError as error:
            raise UnavailableError("The audit log was written to by somebody else; try again.") from error

    async def _append(self, rows: Sequence[AuditRow]) -> None:
        async with self._store.writing() as connection:
            await connection.execute(insert(_ROWS), [asdict(row) for row in rows])
            first = int(await connection.scalar(select(func.min(_ROWS.c.number))) or 0)
            if rows[-1].number - first >= self._most:
                await _fold(connection, first + self._folded - 1)


async def _start(connection: AsyncConnection) -> AuditStart:
    row = (await connection.execute(select(_START.c.number, _START.c.until, _START.c.sha256))).mappings().one_or_none()
    return AuditStart() if row is None else AuditStart(**row)


async def _fold(connection: AsyncConnection, number: int) -> None:
    """Forget all rows up to one of this number, of which the hash stays."""
    row = (await connection.execute(select(_ROWS).where(_ROWS.c.number == number))).mappings().one_or_none()
    if row is None:  # somebody took it away: what is left stays, for a check to find the gap
        return
    last = AuditRow(**row)
    await put(connection, _START, [{"id": 1, "number": number, "until": last.at, "sha256": digest_of(last)}])
    await connection.execute(delete(_ROWS).where(_ROWS.c.number <= number))
