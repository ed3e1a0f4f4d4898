"""Up to where a run's output is in its log, also across the agent's death."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_LENGTH: Final = 128
_NOWHERE: Final = "-"


class OutputMark:
    """The position of the last output that a run's log has, as its runtime calls it.

    It is written down before the log has the output, with the size that the log will have then: so that an agent that
    dies in between is known to have done so, and nothing is in the log twice.

    Args:
        path: The file; one that exists is continued.
        log_size: Bytes of the log now.
    """

    def __init__(self, path: Path, log_size: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fields = os.pread(self._descriptor, _LENGTH, 0).decode("ascii", "replace").split()
        before, after, size = fields if len(fields) == 3 and fields[2].isdecimal() else (_NOWHERE, _NOWHERE, "0")
        position = after if log_size >= int(size) else before
        self.position = "" if position == _NOWHERE else position

    def move(self, position: str, log_size: int) -> None:
        """The log gets what comes before this position next, and is so large then."""
        line = f"{self.position or _NOWHERE} {position} {log_size}"
        self.position = position
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, line.encode("ascii").ljust(_LENGTH), 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)
