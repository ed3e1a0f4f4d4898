"""How much of a run's output is in its log, also across the agent's death."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class OutputMark:
    """Counts the bytes of a run's output that its log has.

    The log's own size does not tell: the agent writes lines of its own there, and the disk may be full.

    Args:
        path: The file; one that exists is continued.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        text = os.pread(self._descriptor, 32, 0).strip()
        self.taken_bytes = int(text) if text.isdigit() else 0

    def advance(self, count: int) -> None:
        """The log has so many bytes more."""
        self.taken_bytes += count
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, b"%-20d\n" % self.taken_bytes, 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)
