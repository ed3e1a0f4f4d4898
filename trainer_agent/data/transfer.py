"""What a fetch writes: files that are counted, hashed and on the disk before anybody may see them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PIECE_BYTES: Final = 1 << 20
_TELL_SECONDS: Final = 0.25


class FetchError(Exception):
    """Something cannot be fetched.

    Args:
        again: Whether another try may go better.
    """

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.again = again


@dataclass(frozen=True, slots=True)
class Found:
    """What there is at a URL."""

    version: str  # equal for as long as it is the same; empty where nobody can tell
    size: int = -1  # in bytes, or -1 where nobody says
    name: str = ""  # what the file is called on the node; empty for a folder


def tell(**message: object) -> None:
    """Tell the agent; ends this process where nobody listens any more."""
    sys.stdout.write(f"{json.dumps(message)}\n")
    sys.stdout.flush()


@dataclass(slots=True)
class Progress:
    """Counts what was written, and says so now and then."""

    limit_bytes: int  # more is an error
    told: Callable[[int], None]  # is told
    size: int = 0  # so far
    _told_at: float = 0.0

    def add(self, count: int) -> None:
        """So many more bytes were written.

        Raises:
            FetchError: They are too many.
        """
        self.size += count
        if self.size > self.limit_bytes:
            raise FetchError(f"it has more than the {self.limit_bytes} bytes that the node's cache holds")
        self.tell_alive()

    def tell_alive(self) -> None:
        """Say how far it is, if that was not said just now."""
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            self._told_at = time.monotonic()
            self.told(self.size)


@dataclass(slots=True)
class Sink:
    """A new file: hashed while it is written, read-only and on the disk when it is left."""

    path: Path  # the file
    progress: Progress  # counts
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    _descriptor: int = -1

    def __enter__(self) -> Self:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                os.fchmod(self._descriptor, 0o444)
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def write(self, data: bytes) -> None:
        """Append."""
        self.progress.add(len(data))
        self._digest.update(data)
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]

    @property
    def sha256(self) -> str:
        """Of what was written, hexadecimal."""
        return self._digest.hexdigest()


def hash_of_folder(files: dict[str, str]) -> str:
    """One hash for a folder: of the lines that ``sha256sum`` prints of its files, sorted by their paths in it."""
    lines = (
        f"{digest}  {path}\n".encode() for path, digest in sorted(files.items(), key=lambda each: os.fsencode(each[0]))
    )
    return hashlib.sha256(b"".join(lines)).hexdigest()
