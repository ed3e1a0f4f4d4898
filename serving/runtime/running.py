"""Which versions run at this moment, in a file that is still there when this process is not.

A process that is killed in the middle of a run can tell nobody what it was doing. So each version has a byte in a file
that is mapped into memory: to set it costs as much as to set any other byte, and the kernel keeps it.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from pathlib import Path
from typing import Final

_ROWS: Final = 1024
_ROW_BYTES: Final = 256
_RUNNING: Final = 1

_logger = logging.getLogger(__name__)


class Mark:
    """The byte of one version.

    Attributes:
        byte: Its first element is 1 while the version runs.
    """

    __slots__ = ("byte", "row")

    def __init__(self, byte: memoryview, row: int = -1) -> None:
        self.byte = byte
        self.row = row


def no_mark() -> Mark:
    """One that nobody looks at."""
    return Mark(memoryview(bytearray(1)))


class RunningMarks:
    """The marks of this process; where there is no room for more, or no file, versions go unmarked.

    Args:
        beside: The file beside which this process has its own; None for no file.
    """

    def __init__(self, beside: Path | None = None) -> None:
        self._path = None if beside is None else _path(beside, str(os.getpid()))
        self._map: mmap.mmap | None = None
        self._free = list(range(_ROWS))
        if self._path is not None:
            try:
                self._map = _mapped(self._path)
            except OSError as error:
                _logger.warning("%s cannot be made, so nobody will know what ran: %s", self._path, error.strerror)

    def take(self, name: str) -> Mark:
        """A mark for a version; any thread may ask."""
        encoded = name.encode()
        if self._map is None or not self._free or len(encoded) >= _ROW_BYTES - 1:
            return no_mark()
        row = self._free.pop()
        start = row * _ROW_BYTES
        self._map[start : start + _ROW_BYTES] = b"\0" + encoded.ljust(_ROW_BYTES - 1, b"\0")
        return Mark(memoryview(self._map)[start : start + 1], row)

    def give_back(self, mark: Mark) -> None:
        """The version is gone."""
        if mark.row >= 0:
            mark.byte[0] = 0
            self._free.append(mark.row)
            mark.row = -1

    def close(self) -> None:
        """Nothing runs any more, and nobody killed this process."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def left_behind(beside: Path) -> list[str]:
    """Versions that ran when earlier processes were killed; told once. Call it when no other server lives."""
    found: list[str] = []
    for path in sorted(beside.parent.glob(_path(beside, "*").name)):
        with contextlib.suppress(OSError):
            with path.open("rb") as file:
                content = file.read(_ROWS * _ROW_BYTES)
            path.unlink()
            rows = [content[start : start + _ROW_BYTES] for start in range(0, len(content), _ROW_BYTES)]
            found += [row[1:].rstrip(b"\0").decode("utf-8", "replace") for row in rows if row[0] == _RUNNING]
    return found


def _path(beside: Path, which: str) -> Path:
    return beside.with_name(f".{beside.name}.running.{which}")


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.ftruncate(descriptor, _ROWS * _ROW_BYTES)
        return mmap.mmap(descriptor, _ROWS * _ROW_BYTES)
    finally:
        os.close(descriptor)
