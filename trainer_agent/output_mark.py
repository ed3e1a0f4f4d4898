"""Up to where a run's output is in its log, also across the agent's death."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_LENGTH: Final = 40


class OutputMark:
    """The position of the last output that a run's log has, as its runtime calls it.

    The log's own size does not tell: the agent writes lines of its own there, and the disk may be full.

    Args:
        path: The file; one that exists is continued.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.position = os.pread(self._descriptor, _LENGTH, 0).decode("ascii", "replace").strip()

    def advance(self, position: str) -> None:
        """The log has what comes before this position."""
        self.position = position
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, position.encode("ascii").ljust(_LENGTH), 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)
