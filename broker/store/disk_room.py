"""Room on the broker's disk: what is free, and what of that is promised to what is on its way in."""

from __future__ import annotations

import contextlib
import shutil
import threading
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakSet

from tiercel.broker.store.errors import no_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RESERVE_BYTES: Final = 512 * 1024**2


class Expected(Protocol):
    """Something that is on its way in."""

    @property
    def expected_bytes(self) -> int:
        """What will be written of it still."""


Begun = TypeVar("Begun", bound=Expected)


class _Growing:
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

    def begin(self, wanted_bytes: int, begin: Callable[[], Begun]) -> Begun:
        """Begin something if there is room for so much, and keep that for as long as it lives and expects more.

        Raises:
            CannotWriteError: There is not; nothing was begun.
        """
        with self._changing:
            self._check(wanted_bytes)
            begun = begin()
            self._promised.add(begun)
            return begun

    @contextlib.contextmanager
    def growing(self, path: Path, size_bytes: int) -> Iterator[None]:
        """Keep room for a file that is written from its beginning on within the block.

        Raises:
            CannotWriteError: There is not so much.
        """
        coming = self.begin(size_bytes, lambda: _Growing(path, size_bytes))
        try:
            yield
        finally:
            with self._changing:
                self._promised.discard(coming)

    def _check(self, wanted_bytes: int) -> None:
        promised = sum(each.expected_bytes for each in self._promised)
        if shutil.disk_usage(self._folder).free - promised - wanted_bytes < self._reserve_bytes:
            raise no_space(str(self._folder))
