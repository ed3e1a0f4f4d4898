"""The artefact store as this broker uses it: what it has there, how much that may be, and how long calls may take."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from tiercel.broker.store.artefacts.contract import MAX_HELD
from tiercel.broker.store.artefacts.databases import DatabaseCopy, databases_in, say_databases
from tiercel.broker.store.artefacts.pace import PacedFile
from tiercel.broker.store.checkpoints import DEFAULT_CHECKPOINTS_BYTES
from tiercel.core.backoff import Backoff
from tiercel.core.checkpoints import Artefact
from tiercel.core.errors import QuotaExceededError, StoreDamagedError, UnavailableError
from tiercel.core.tasks import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.store.artefacts.contract import Artefacts
    from tiercel.broker.store.artefacts.ownership import Ownership

DEFAULT_BYTES_PER_SECOND = 32 * 1024**2
_READ_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Patience:
    """How the store is dealt with."""

    look_seconds: float = 1.0  # between two looks at what there is to do
    answer_seconds: float = 15.0  # how long a call to the store may take, but for what it carries
    bytes_per_second: float = 1024.0**2  # how fast it must carry that at least
    sent_bytes_per_second: float = DEFAULT_BYTES_PER_SECOND  # how fast it is sent something at most
    list_seconds: float = 3600.0  # how often it is asked for all that it has
    # Pauses before the next look after one that failed.
    backoff: Backoff = field(default_factory=lambda: Backoff(2.0, 60.0))

    def seconds_for(self, size_bytes: int) -> float:
        """The deadline of a call that carries so much."""
        return self.answer_seconds + size_bytes / min(self.bytes_per_second, self.sent_bytes_per_second / 2)


class OwnArtefacts:
    """What this broker has in the artefact store. Its methods raise what the store's raise.

    Args:
        ownership: Says whether it is ours.
        limit_bytes: What all that is stored may have together.

    Attributes:
        held: What the store has, as far as we know: bytes by SHA-256.
    """

    def __init__(
        self,
        artefacts: Artefacts,
        ownership: Ownership,
        clock: Clock,
        limit_bytes: int = DEFAULT_CHECKPOINTS_BYTES,
        patience: Patience | None = None,
    ) -> None:
        self._artefacts = artefacts
        self._ownership = ownership
        self._clock = clock
        self._limit_bytes = limit_bytes
        self.patience = patience or Patience()
        self.held: dict[str, int] = {}
        self._listed_at = -math.inf

    async def look(self) -> None:
        """Ask for all that is there, where that is due."""
        if self._clock.alive() - self._listed_at < self.patience.list_seconds:
            return
        await self._ownership.ensure(self.patience.answer_seconds)
        await self._artefacts.remove_unfinished(self.patience.answer_seconds)
        self.held = await self._artefacts.held(self.patience.answer_seconds)
        self._listed_at = self._clock.alive()

    async def put(self, source: BinaryIO, *, is_bounded: bool = True) -> Artefact:
        """Keep what a file has, unless it is there already.

        Args:
            source: The file.
            is_bounded: Whether it counts against what may be stored.

        Raises:
            QuotaExceededError: All that is stored would have more than it may.
            TiercelError: As the store's ``put``.
        """
        if is_bounded:  # before all of it is read, which takes a while
            self._check_room(os.fstat(source.fileno()).st_size)
        await self.ensure_ours()
        artefact = await run_in_thread(_artefact_of, source)
        if artefact.sha256 not in self.held:
            paced = cast("BinaryIO", PacedFile(source, self.patience.sent_bytes_per_second))
            await self._artefacts.put(artefact, paced, self.patience.seconds_for(artefact.size_bytes))
            if not await self._artefacts.has(artefact, self.patience.answer_seconds):
                raise UnavailableError(
                    f"the artefact store {self._artefacts.where} has not what it took; it is tried again"
                )
            self.held[artefact.sha256] = artefact.size_bytes
        return artefact

    async def databases(self) -> list[DatabaseCopy]:
        """The copies of the database that are said to be there, the newest first."""
        return await databases_in(self._artefacts, self.patience.answer_seconds)

    async def say_databases(self, copies: Sequence[DatabaseCopy]) -> None:
        """Say which they are."""
        await self.ensure_ours()
        await say_databases(self._artefacts, copies, self.patience.answer_seconds)

    async def get(self, artefact: Artefact, place: Path) -> None:
        """Write an artefact into a file that does not exist yet."""
        seconds = self.patience.seconds_for(artefact.size_bytes)
        try:
            await self._artefacts.get(artefact, place, seconds)
        except StoreDamagedError:  # perhaps on its way: what it is given up for must be certain
            await self._artefacts.get(artefact, place, seconds)

    async def remove_but(self, needed: Collection[str]) -> None:
        """Remove what is not needed."""
        unneeded = self.held.keys() - set(needed)
        if unneeded:
            await self.ensure_ours()
        for sha256 in unneeded:
            await self._artefacts.delete(sha256, self.patience.answer_seconds)
            del self.held[sha256]

    async def ensure_ours(self) -> None:
        """See that the store is ours still, before anything is changed there."""
        if await self._ownership.ensure(self.patience.answer_seconds):
            self._listed_at = -math.inf  # somebody has emptied it: what is there is asked for again

    def _check_room(self, wanted_bytes: int) -> None:
        if len(self.held) >= MAX_HELD:
            raise QuotaExceededError(
                f"the artefact store has {len(self.held)} artefacts, and more are not kept; wait until jobs are over, "
                "or delete endpoints that are not used",
                field="artefacts",
            )
        if sum(self.held.values()) + wanted_bytes > self._limit_bytes:
            raise QuotaExceededError(
                f"the artefact store may have {self._limit_bytes} bytes together, and this one does not fit; wait "
                "until other jobs are over, or give it more (TIERCEL_ARTEFACTS_BYTES)",
                field="artefacts",
            )


def _artefact_of(source: BinaryIO) -> Artefact:
    """What a file is as an artefact; blocks."""
    source.seek(0)
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_READ_BYTES):
        digest.update(piece)
        size += len(piece)
    return Artefact(digest.hexdigest(), size)
