"""The output of a run on disk, bounded, outside of what the run itself can write to."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from tiercel.core.kept_output import HEAD_BYTES, TAIL_BYTES, KeptOutput

_LAST_BYTES: Final = 16 * 1024


class RunLog:
    """One run's output. Appending to it and reading from it block for a short write or read on a local disk.

    Args:
        path: The file; one that exists is continued.
        head_bytes: How much of the beginning is kept.
        tail_bytes: How much of the end is kept at least.
    """

    def __init__(self, path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)
        self._output = KeptOutput(path, head_bytes, tail_bytes)
        self._closed = False

    @property
    def size(self) -> int:
        """Bytes of the whole output, those that are not kept any more among them."""
        return self._output.size

    def append(self, data: bytes) -> None:
        """Keep some output: what the disk takes of it."""
        if not self._closed:
            with contextlib.suppress(OSError):  # a run must not end because its output finds no room
                self._output.append(data)

    def append_line(self, line: str) -> None:
        """Keep a line of the agent's own, on a line of its own."""
        size = self.size
        ends_open = size > 0 and self.read(size - 1, 1)[1] != b"\n"
        self.append(f"{chr(10) * ends_open}{line}\n".encode())

    def read(self, offset: int, limit: int) -> tuple[int, bytes]:
        """At most ``limit`` bytes from ``offset`` on, or from where what is kept goes on behind it.

        Returns:
            Where they begin, and the bytes; none at the end, and once the file was let go of.
        """
        return (offset, b"") if self._closed else self._output.read(offset, limit)

    def tail(self, lines: int = 20) -> str:
        """The last lines, at most 16 KiB of them."""
        size = self.size
        data, position = b"", max(0, size - _LAST_BYTES)
        while position < size:  # they may lie in two pieces
            begin, piece = self.read(position, size - position)
            if not piece:
                break
            data, position = data + piece, begin + len(piece)
        return "\n".join(data.decode(errors="replace").splitlines()[-lines:])

    def remove(self) -> None:
        """Let go of the file and remove it."""
        self._closed = True
        self._output.remove()
