"""Copies of the database in the artefact store, each with all that it speaks of."""

from __future__ import annotations

import math
import sqlite3
from typing import TYPE_CHECKING

from tiercel.broker.store.artefacts.databases import KEPT_DATABASES, DatabaseCopy
from tiercel.broker.store.backups import copy_database
from tiercel.core.errors import CannotWriteError, UnavailableError
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tiercel.broker.actors.artefacts.keeper import Kind
    from tiercel.broker.actors.artefacts.own import OwnArtefacts
    from tiercel.broker.actors.clock import Clock


class DatabaseKeeper:
    """Keeps the newest few copies of the database: a :class:`~.keeper.Kind`, and the last of them.

    What the newest copy speaks of stays until there is a newer copy, though the broker may not need it any more: a
    broker that goes on from that copy does.

    Args:
        others: What else is kept.
        database: The file.
    """

    def __init__(
        self, own: OwnArtefacts, others: Sequence[Kind], database: Path, clock: Clock, interval_seconds: float
    ) -> None:
        self._own = own
        self._others = others
        self._database = database
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._copied_at = -math.inf
        self._copies: list[DatabaseCopy] = []
        # What the newest copy speaks of; None before this life of the broker has made one: an earlier one's is unknown.
        self._spoken_of: set[str] | None = None

    async def look(self) -> None:
        """See :class:`~.keeper.Kind`."""
        if self._clock.alive() - self._copied_at < self._interval_seconds:
            return
        self._copies = self._copies or await self._own.databases()
        now = self._clock.now()
        scratch = self._database.with_name(f"{self._database.name}.copy")
        try:
            spoken_of = self._needed_by_others()
            await run_in_thread(copy_database, self._database, scratch)
            spoken_of |= self._needed_by_others()
            with scratch.open("rb") as source:
                artefact = await self._own.put(source, is_bounded=False)
        except CannotWriteError:  # what only the last copy speaks of is in the way of everything
            self._spoken_of = set()
            raise
        except sqlite3.Error as error:
            raise UnavailableError(f"the broker's database cannot be copied ({error}); it is tried again") from error
        finally:
            scratch.unlink(missing_ok=True)
        older = [copy for copy in self._copies if copy.sha256 != artefact.sha256]
        copies = [DatabaseCopy(artefact.sha256, artefact.size_bytes, now), *older][:KEPT_DATABASES]
        await self._own.say_databases(copies)
        self._copies, self._spoken_of, self._copied_at = copies, spoken_of, self._clock.alive()

    def needed(self) -> set[str]:
        """See :class:`~.keeper.Kind`."""
        if self._spoken_of is None:
            return set(self._own.held)
        return self._spoken_of | {copy.sha256 for copy in self._copies}

    async def tell(self, problem: str) -> None:
        """See :class:`~.keeper.Kind`: it stands in the log."""

    def _needed_by_others(self) -> set[str]:
        return set().union(*(kind.needed() for kind in self._others))
