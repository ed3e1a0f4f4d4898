"""Room on the broker's disk: what is free, and what of that is promised to what is on its way in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from tiercel.broker.store.errors import no_space

if TYPE_CHECKING:
    from pathlib import Path

RESERVE_BYTES: Final = 512 * 1024**2


class Expected(Protocol):
    """Something that is on its way in."""

    @property
    def expected_bytes(self) -> int:
        """What will be written of it still."""


class DiskRoom:
    """Owns what the disk of a folder is promised to: two that come at once do not both count on the same room.

    Args:
        folder: The folder.
        reserve_bytes: What the disk has to have left: the broker's database is there, too.
    """

    def __init__(self, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._promised: WeakSet[Expected] = WeakSet()

    def check(self, wanted_bytes: int) -> None:
        """Check that the disk has something left when it has taken so much, and all that is promised.

        Raises:
            CannotWriteError: It has not.
        """
        promised = sum(each.expected_bytes for each in self._promised)
        if shutil.disk_usage(self._folder).free - promised - wanted_bytes < self._reserve_bytes:
            raise no_space(str(self._folder))

    def promise(self, expected: Expected) -> None:
        """Keep room for something, for as long as it lives and expects more; :meth:`check` was asked just before."""
        self._promised.add(expected)
