"""Room on the broker's disk: what is free, and what of that is promised to what is on its way in."""

from __future__ import annotations

import contextlib
import shutil
import threading
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


class Growing:
    """A file of known size that somebody writes from its beginning on; it need not be there yet."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes

    @property
    def expected_bytes(self) -> int:
        """See :class:`Expected`."""
        with contextlib.suppress(FileNotFoundError):
            return max(0, self._size_bytes - self._path.stat().st_size)
        return self._size_bytes


class DiskRoom:
    """Owns what the disk of a folder is promised to: two that come at once do not both count on the same room.

    Any thread may ask.

    Args:
        folder: The folder.
        reserve_bytes: What the disk has to have left: the broker's database is there, too.
    """

    def __init__(self, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._promised: WeakSet[Expected] = WeakSet()
        self._changing = threading.Lock()

    def check(self, wanted_bytes: int) -> None:
        """Check that the disk has something left when it has taken so much, and all that is promised.

        Raises:
            CannotWriteError: It has not.
        """
        with self._changing:
            self._check(wanted_bytes)

    def promise(self, expected: Expected) -> None:
        """Keep room for something, for as long as it lives and expects more; :meth:`check` was asked just before."""
        with self._changing:
            self._promised.add(expected)

    def take(self, expected: Expected) -> None:
        """Check that there is room for what something expects, and keep it.

        Raises:
            CannotWriteError: There is not.
        """
        with self._changing:
            self._promised.discard(expected)
            self._check(expected.expected_bytes)
            self._promised.add(expected)

    def _check(self, wanted_bytes: int) -> None:
        promised = sum(each.expected_bytes for each in self._promised)
        if shutil.disk_usage(self._folder).free - promised - wanted_bytes < self._reserve_bytes:
            raise no_space(str(self._folder))
