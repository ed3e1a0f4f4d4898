"""Keeps in the artefact store what the broker would miss if its machine were lost, and brings back what it lost.

It compares, again and again, what there is with what the store has. So it forgets nothing while the store is away, and
what it has done twice is done once.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

from tiercel.core.backoff import Attempts
from tiercel.core.complaints import Complaint
from tiercel.core.errors import CannotWriteError, OverloadedError, TiercelError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from tiercel.broker.actors.artefacts.own import OwnArtefacts
    from tiercel.broker.actors.clock import Clock

logger = logging.getLogger(__name__)


class Kind(Protocol):
    """One kind of what is kept."""

    async def look(self) -> None:
        """Compare once, and mend what differs.

        Raises:
            TiercelError: The store is away, full or another broker's; the rest is mended with the next look.
            OSError: The broker cannot read what is to be stored.
        """

    def needed(self) -> set[str]:
        """SHA-256 of what must stay in the store."""

    async def tell(self, problem: str) -> None:
        """Say to those whom it concerns why the store does not do what it should."""


class ArtefactKeeper:
    """Sees to it that the artefact store has what is needed, and nothing else.

    Args:
        kinds: What is kept there; each is looked at whatever becomes of the others.
    """

    def __init__(self, own: OwnArtefacts, kinds: Sequence[Kind], clock: Clock) -> None:
        self._own = own
        self._kinds = kinds
        self._clock = clock
        self._complaint = Complaint(logger)

    async def run(self) -> None:
        """Compare and mend until cancelled."""
        attempts = Attempts(self._own.patience.backoff)
        while True:
            pause = self._own.patience.look_seconds
            try:
                await self.look()
                attempts.reset()
                self._complaint.note("")
            except TiercelError as error:
                self._complaint.note(error.message)
                pause = attempts.next_seconds()
            await self._clock.sleep(pause)

    async def look(self) -> None:
        """Compare once, and mend what differs.

        Raises:
            TiercelError: What went wrong first; whom it concerns was told.
        """
        await self._told(self._own.look(), self._kinds)
        failed: TiercelError | None = None
        for kind in self._kinds:
            try:
                await self._told(kind.look(), [kind])
            except TiercelError as error:
                failed = failed or error
        # Last: where nothing may be removed, what is newer is stored all the same. Where it is full, this makes room.
        if failed is None or isinstance(failed, CannotWriteError):
            await self._told(self._own.remove_but(set().union(*(kind.needed() for kind in self._kinds))), self._kinds)
        if failed is not None:
            raise failed

    async def _told(self, work: Awaitable[None], kinds: Sequence[Kind]) -> None:
        try:
            await work
        except OSError as cause:
            error = UnavailableError(f"the broker cannot read its copies: {cause.strerror or cause}")
            await self._tell(error.message, kinds)
            raise error from cause
        except TiercelError as error:
            await self._tell(error.message, kinds)
            raise

    async def _tell(self, problem: str, kinds: Sequence[Kind]) -> None:
        for kind in kinds:
            with contextlib.suppress(OverloadedError):  # who did not hear it hears it next time
                await kind.tell(problem)
