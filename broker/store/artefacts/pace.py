"""A file that is read at a bounded pace, so that what is kept in the background leaves room on the network."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable


class PacedFile(io.RawIOBase):
    """Reads another file no faster than so many bytes a second; who reads it blocks, and so is on a thread.

    Args:
        source: The file; stays open when this is closed.
        bytes_per_second: More than 0.
        now: Seconds of a clock that never goes back.
        wait: Blocks for so many seconds.
    """

    def __init__(
        self,
        source: BinaryIO,
        bytes_per_second: float,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._source = source
        self._bytes_per_second = bytes_per_second
        self._now = now
        self._wait = wait
        self._due = now()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, not before they are due."""
        if (pause := self._due - self._now()) > 0:
            self._wait(pause)
        piece = self._source.read(size)
        self._due = max(self._due, self._now()) + len(piece) / self._bytes_per_second
        return piece

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go on reading elsewhere."""
        return self._source.seek(offset, whence)
