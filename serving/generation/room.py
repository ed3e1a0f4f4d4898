"""How many bytes of keys and values there may be, of all versions together."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Holder(Protocol):
    """Holds some of it."""

    def look(self) -> None:
        """There may be more now; called on the event loop."""


class CacheRoom:
    """Bytes that are held, by holder; used on the event loop only.

    Args:
        total: How many there are.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: dict[Holder, int] = {}
        self._refused: dict[Holder, None] = {}

    @property
    def used(self) -> int:
        """Bytes that are held."""
        return sum(self._held.values())

    def hold(self, holder: Holder, size: int) -> bool:
        """Hold so many bytes in place of those before, if they are there; less are always.

        Returns:
            Whether it holds them. If not, it is told when others hold less.
        """
        before = self._held.get(holder, 0)
        if size > before and self.used - before + size > self.total:
            self._refused[holder] = None
            return False
        self._held[holder] = size
        if not size:
            del self._held[holder]
        if size < before:
            refused, self._refused = self._refused, {}
            for each in refused:
                asyncio.get_running_loop().call_soon(each.look)
        return True
