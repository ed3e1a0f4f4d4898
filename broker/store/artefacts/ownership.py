"""Whose artefact store it is: one broker's, which alone puts and removes there.

A mark in the store names the database and the life of the broker that took it last. Another broker's store is refused.
A newer life of the same database takes it over, as after the loss of a machine; the older one, should it still run,
sees that before it next changes anything, and leaves it alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tiercel.core.errors import ConflictError

if TYPE_CHECKING:
    from tiercel.broker.store.artefacts.contract import Artefacts


class Ownership:
    """Marks a store as one broker's.

    Args:
        database: Names the broker's database, for as long as that lives.
        life: Names this life of the broker.
    """

    def __init__(self, artefacts: Artefacts, database: str, life: str) -> None:
        self._artefacts = artefacts
        self._mark = {"broker": database, "life": life}
        self._is_taken = False

    async def ensure(self, seconds: float) -> bool:
        """Take the store, or see that it is still ours; to be called before anything is changed there.

        Args:
            seconds: The deadline of each call to the store.

        Returns:
            Whether it was taken just now.

        Raises:
            ConflictError: It is another broker's, or another life's by now.
            UnavailableError: The store does not answer, or refuses.
        """
        found = await self._read(seconds)
        if found == self._mark:
            self._is_taken = True
            return False
        if found is not None and found.get("broker") != self._mark["broker"]:
            raise ConflictError(
                f"the artefact store {self._artefacts.where} is another broker's; give each broker a place of its own"
            )
        if found is not None and self._is_taken:
            raise ConflictError(
                f"another broker with the same database uses the artefact store {self._artefacts.where} by now; "
                "end one of them, and start the other one again"
            )
        await self._artefacts.write_mark(json.dumps(self._mark).encode(), seconds, only_new=found is None)
        if await self._read(seconds) != self._mark:
            raise ConflictError(
                f"another broker takes the artefact store {self._artefacts.where} just now; give each broker a place "
                "of its own"
            )
        self._is_taken = True
        return True

    async def _read(self, seconds: float) -> dict[str, str] | None:
        content = await self._artefacts.read_mark(seconds)
        if content is None:
            return None
        try:
            mark = json.loads(content)
        except (ValueError, RecursionError):
            return {}  # somebody's, who is not known
        return mark if isinstance(mark, dict) else {}
