"""The output of a run on a disk: its beginning and its end, whatever it writes in between.

The beginning is in one file. What follows goes into pieces in a folder beside it, each named by the byte of the output
that it begins with; the oldest give way. So what is kept, and where it belongs, is known after a restart.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD_BYTES: Final = 8 * 1024**2
TAIL_BYTES: Final = 8 * 1024**2
_PIECES: Final = 4  # that make up the tail
_MOST_PIECES: Final = 16
_FLAGS: Final = os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class KeptOutput:
    """One run's output. Each call blocks for a few short operations on a local disk.

    Args:
        path: The file of the beginning; what exists is gone on with.
        head_bytes: How much of the beginning is kept.
        tail_bytes: How much of the end is kept at least; at most a quarter more.
    """

    def __init__(self, path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._path = path
        self._tail = path.with_name(f"{path.name}.tail")
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._piece_bytes = max(1, tail_bytes // _PIECES)

    @property
    def size(self) -> int:
        """Bytes of the whole output, those that are not kept among them."""
        pieces = self._pieces()
        return pieces[-1][0] + pieces[-1][1] if pieces else self._head_size()

    @property
    def head_is_full(self) -> bool:
        """Whether what comes next is not of the beginning any more."""
        return self._head_size() >= self._head_bytes

    def append(self, data: bytes) -> None:
        """Keep what was written next.

        Raises:
            OSError: The disk does not take it, or not all of it.
        """
        self.write_at(self.size, data)

    def write_at(self, offset: int, data: bytes) -> None:
        """Keep what was written at ``offset``, which is not before :attr:`size`; between is what nobody has.

        Raises:
            OSError: The disk does not take it, or not all of it.
        """
        rest = memoryview(data)
        pieces = self._pieces()
        if not pieces and (room := self._head_bytes - self._head_size()) > 0:
            written = _append_to(self._path, rest[:room])
            rest, offset = rest[written:], offset + written
        start, held = pieces[-1] if pieces else (-1, 0)
        while rest:
            if start + held != offset or held >= self._piece_bytes:
                start, held = offset, 0
                self._make_room()
            written = _append_to(self._piece(start), rest[: self._piece_bytes - held])
            rest, offset, held = rest[written:], offset + written, held + written

    def read(self, offset: int, limit: int) -> tuple[int, bytes]:
        """Up to ``limit`` bytes from ``offset`` on, or from the first that are kept behind it.

        Returns:
            Where they begin, and the bytes: none at the end.
        """
        if offset < self._head_size():
            return offset, _read(self._path, offset, limit)
        for start, held in self._pieces():
            if offset < start + held:
                begin = max(offset, start)
                return begin, _read(self._piece(start), begin - start, limit)
        return offset, b""

    def remove(self) -> None:
        """Remove all of it."""
        self._path.unlink(missing_ok=True)
        shutil.rmtree(self._tail, ignore_errors=True)

    def _make_room(self) -> None:
        """Drop the oldest pieces, and see to it that there is a folder for the next."""
        self._tail.mkdir(mode=0o700, exist_ok=True)
        pieces = self._pieces()
        # Pieces are short where something between them is missing; then the tail is shorter as well.
        while sum(held for _, held in pieces[1:]) >= self._tail_bytes or len(pieces) >= _MOST_PIECES:
            self._piece(pieces.pop(0)[0]).unlink(missing_ok=True)

    def _head_size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _pieces(self) -> list[tuple[int, int]]:
        """Where each piece begins, and how long it is; in order."""
        try:
            with os.scandir(self._tail) as found:
                return sorted((int(piece.name), piece.stat().st_size) for piece in found)
        except FileNotFoundError:
            return []

    def _piece(self, start: int) -> Path:
        return self._tail / str(start)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _append_to(path: Path, data: memoryview) -> int:
    with _opened(path, os.O_WRONLY | _FLAGS) as descriptor:
        return os.write(descriptor, data)


def _read(path: Path, offset: int, limit: int) -> bytes:
    with _opened(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW) as descriptor:
        return os.pread(descriptor, limit, offset)
