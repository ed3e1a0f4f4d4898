"""Writes down who changed what: before it is done, so that nothing is done of which there is no record.

A change costs one row that is waited for, together with those of all others that wait, and one when it has ended that
nobody waits for. What only reads costs nothing. A change that cannot be written down is refused like any other that the
disk does not take; how it ended is written as soon as the disk takes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.broker.access.peers import Peers
from tiercel.core.addresses import network_of
from tiercel.core.audit import BEGUN, COUNTED, NOTHING_BEFORE, AuditRow, digest_of
from tiercel.core.errors import TiercelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.store.audit import AuditStore
    from tiercel.core.audit import AuditStart

logger = logging.getLogger(__name__)

ROWS_AT_A_TIME = 500
MOST_REFUSALS_WAITING = 1_000
# Room for a node with all names that it may have (core/trust/names.py).
MAX_OBJECT_CHARACTERS = 1_000
# Between two rows that say how many refusals had none.
COUNTED_SECONDS = 10.0
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Subject:
    """Who does what."""

    caller: str  # see :class:`.AuditRow`, as of all others
    tenant: str  # whose things it may touch
    role: str  # what it is
    method: str  # what it calls
    peer: str  # from where
    object: str = ""  # what the call names


@dataclass(slots=True)
class _Waiting:
    """A row without number; somebody may wait for it."""

    row: AuditRow
    written: asyncio.Future[int] | None = None


class Audit:
    """Keeps the record."""

    def __init__(self, store: AuditStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._refusals = Peers()
        self._waiting: deque[_Waiting] = deque()
        self._is_waiting = asyncio.Event()
        self._writing = asyncio.Lock()
        self._last = (0, NOTHING_BEFORE)

    async def start(self) -> None:
        """Find the end of what is kept."""
        start, last = await self._store.start(), await self._store.last()
        self._last = (start.number, start.sha256) if last is None else (last.number, digest_of(last))

    async def _find_end(self) -> None:
        """After an attempt of which it is not known whether it counts."""
        with contextlib.suppress(TiercelError):
            await self.start()

    async def begin(self, subject: Subject) -> int:
        """Write down that somebody is about to change something; returns the row's number.

        Raises:
            CannotWriteError: That cannot be kept, so that it must not be done.
            UnavailableError: The database does not answer.
        """
        waiting = _Waiting(self._row(subject, BEGUN), asyncio.get_running_loop().create_future())
        self._put(waiting)
        assert waiting.written is not None  # noqa: S101 - for the type checker
        return await waiting.written

    def end(self, number: int, subject: Subject, outcome: str) -> None:
        """Write down what became of what began with a row, some time soon."""
        self._put(_Waiting(replace(self._row(subject, outcome), call=number)))

    def refuse(self, subject: Subject, outcome: str) -> None:
        """Write down that somebody was refused, some time soon, or count it."""
        room = len(self._waiting) < MOST_REFUSALS_WAITING
        if self._refusals.try_take(network_of(subject.peer), self._clock.alive()) and room:
            self._put(_Waiting(self._row(subject, outcome)))

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            try:
                async with asyncio.timeout(COUNTED_SECONDS):
                    await self._is_waiting.wait()
            except TimeoutError:
                self._put_counted()
                continue
            if not await self._write():
                await self._clock.sleep(RETRY_SECONDS)

    async def flush(self) -> None:
        """Write all that waits; for the end."""
        self._put_counted()
        # Once at least: what is being written just now is waited for.
        while await self._write() and self._waiting:
            pass

    async def rows(self, since: float) -> tuple[AuditStart, AsyncIterator[list[AuditRow]]]:
        """Where the record begins, and its rows from a time on, oldest first, a page at a time."""
        return await self._store.start(), self._pages(since)

    async def _pages(self, since: float) -> AsyncIterator[list[AuditRow]]:
        after = 0
        while page := await self._store.page(after, since, ROWS_AT_A_TIME):
            yield page
            after = page[-1].number

    def _row(self, subject: Subject, outcome: str) -> AuditRow:
        return AuditRow(
            number=0,
            at=self._clock.now(),
            call=0,
            caller=subject.caller,
            tenant=subject.tenant,
            role=subject.role,
            method=subject.method,
            object=subject.object[:MAX_OBJECT_CHARACTERS],
            outcome=outcome,
            peer=subject.peer,
        )

    def _put(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._is_waiting.set()

    def _put_counted(self) -> None:
        for peer, count in self._refusals.take_counted().items():
            self._put(_Waiting(self._row(Subject("", "", "", "", peer, f"{count} more refusals"), COUNTED)))

    async def _write(self) -> bool:
        """Write some of what waits; whether that worked."""
        async with self._writing:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), ROWS_AT_A_TIME))]
            if not self._waiting:
                self._is_waiting.clear()
            if not batch:
                return True
            rows: list[AuditRow] = []
            number, previous = self._last
            for each in batch:
                number += 1
                rows.append(replace(each.row, number=number, previous=previous))
                previous = digest_of(rows[-1])
            try:
                await self._store.append(rows)
            except TiercelError as error:
                self._give_back(batch, error)
                await self._find_end()
                return False
            except BaseException:
                self._give_back(batch, None)
                raise
            self._last = (number, previous)
        for each, row in zip(batch, rows, strict=True):
            if each.written is not None and not each.written.done():
                each.written.set_result(row.number)
        return True

    def _give_back(self, batch: list[_Waiting], error: TiercelError | None) -> None:
        """Tell those who wait that it did not work; what nobody waits for is tried again."""
        again = [each for each in batch if each.written is None]
        self._waiting.extendleft(reversed(again))
        if self._waiting:
            self._is_waiting.set()
        if error is not None and again:
            logger.warning("%d rows of the audit log cannot be written now: %s", len(again), error.message)
        for each in batch:
            if each.written is not None and not each.written.done():
                each.written.set_exception(error) if error is not None else each.written.cancel()
