"""The output of a run on disk, bounded, outside of what the run itself can write to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

LIMIT_BYTES: Final = 16 * 1024**2
_NOTICE: Final = b"\n[tiercel: the output is longer than %d bytes; the rest is not kept]\n"
_TAIL_BYTES: Final = 16 * 1024


class RunLog:
    """One run's output. Appending to it and reading from it block for a short write or read on a local disk.

    Args:
        path: The file; one that exists is continued.
        limit_bytes: How much is kept.
    """

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._limit = limit_bytes
        self.size = os.fstat(self._descriptor).st_size

    def append(self, data: bytes) -> None:
        """Keep some output: what the disk takes of it, and of what is beyond the limit only a line that says so."""
        if self.size > self._limit or self._descriptor < 0:
            return
        if len(data) > self._limit - self.size:
            data = data[: self._limit - self.size] + _NOTICE % self._limit
        with contextlib.suppress(OSError):  # a run must not end because its output finds no room
            self.size += os.write(self._descriptor, data)

    def read(self, offset: int, limit: int) -> bytes:
        """At most ``limit`` bytes from ``offset`` on; none once the file was let go of."""
        if self._descriptor < 0:
            return b""
        return os.pread(self._descriptor, limit, offset)

    def tail(self, lines: int = 20) -> str:
        """The last lines, at most 16 KiB of them."""
        text = self.read(max(0, self.size - _TAIL_BYTES), _TAIL_BYTES).decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """Let go of the file. Doing it twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Let go of the file and remove it."""
        self.close()
        self._path.unlink(missing_ok=True)
