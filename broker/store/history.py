"""What was: a job's reports and events, newest ones first in the database, so that each read is bounded there."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, select

from tiercel.broker.store import tables
from tiercel.core.events import JobEvent, ProgressMade
from tiercel.core.storage import from_json
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import ColumnElement

    from tiercel.broker.store.sql import Store

_EVENTS = tables.events.c
_ROWS_AT_A_TIME = 500
_LAST_SEQUENCE = 2**62


class Report(NamedTuple):
    """A report of the metric."""

    at: float  # when, seconds since the Unix epoch
    value: float  # the metric
    epoch: int  # of the training


class History:
    """Reads what is kept of jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Long curves, a piece at a time: whatever else the broker does comes in between.
        self._one_at_a_time = asyncio.Lock()

    async def reports(self, job_id: str, most: int) -> tuple[list[Report], int]:
        """A job's latest reports, at most so many, oldest first; and how many are kept in all."""
        mine = (_EVENTS.job_id == job_id, _EVENTS.kind == ProgressMade.__name__)
        newest = select(_EVENTS.sequence, _EVENTS.content).where(*mine).order_by(_EVENTS.sequence.desc())
        found: list[Report] = []
        seen, before = 0, _LAST_SEQUENCE
        async with self._one_at_a_time:
            while seen < most:
                limit = min(_ROWS_AT_A_TIME, most - seen)
                async with self._store.reading() as connection:
                    rows = (await connection.execute(newest.where(_EVENTS.sequence < before).limit(limit))).all()
                found += await run_in_thread(_reports, [content for _, content in rows])
                seen += len(rows)
                if len(rows) < limit:
                    return found[::-1], seen
                before = rows[-1][0]
            async with self._store.reading() as connection:
                return found[::-1], int(await connection.scalar(select(func.count()).where(*mine)) or 0)

    async def events(self, job_id: str, kinds: Collection[type], most: int) -> list[JobEvent]:
        """A job's latest events of some kinds, at most so many, oldest first."""
        names = [kind.__name__ for kind in kinds]
        return await self._load((_EVENTS.job_id == job_id, _EVENTS.kind.in_(names)), most)

    async def last_before(self, job_id: str, at: float) -> ProgressMade | None:
        """What a job reported last before a time, or None."""
        mine = (_EVENTS.job_id == job_id, _EVENTS.kind == ProgressMade.__name__, _EVENTS.at < at)
        found = await self._load(mine, 1)
        change = found[0].change if found else None
        return change if isinstance(change, ProgressMade) else None

    async def _load(self, conditions: Sequence[ColumnElement[bool]], most: int) -> list[JobEvent]:
        query = select(_EVENTS.content).where(*conditions).order_by(_EVENTS.sequence.desc()).limit(most)
        async with self._store.reading() as connection:
            texts = (await connection.scalars(query)).all()
        return [from_json(JobEvent, text) for text in reversed(texts)]


def _reports(texts: Sequence[str]) -> list[Report]:
    """Of stored events, in their order; what is no number is left out, as nobody can draw it."""
    found = ((event["at"], event["change"]) for event in map(json.loads, texts))
    reports = [Report(at, float(change["value"]), change["epoch"]) for at, change in found]
    return [report for report in reports if math.isfinite(report.value)]
