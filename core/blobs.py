"""A folder of files by their content: each is named by the SHA-256 of its bytes, and is there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Self

_NAME = re.compile(r"[0-9a-f]{64}")
# What has arrived is made durable together: a hundred small files cost one flush of the disk's journal.
_TOGETHER = 128
_TOGETHER_BYTES = 64 * 1024**2


class BlobError(Exception):
    """What came is not what was announced; the message says so in plain words."""


def is_sha256(text: str) -> bool:
    """Whether it is a SHA-256 in hexadecimal."""
    return _NAME.fullmatch(text) is not None


class BlobFolder:
    """Files by content. Everything here blocks while the disk works.

    Args:
        folder: Where they are; made with the first one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are not here."""
        here = {entry.name for entry in self._entries()}
        return [name for name in names if name not in here]

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if it is not here."""
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return None

    def path(self, name: str) -> Path:
        """Where a file is, or would be.

        Raises:
            BlobError: It is no SHA-256.
        """
        if not is_sha256(name):
            raise BlobError(f"{name[:80]!r} is not a SHA-256 in hexadecimal")
        return self._folder / name

    def read(self, name: str, limit_bytes: int) -> bytes:
        """The content of a small file, or its beginning if it has more.

        Raises:
            FileNotFoundError: It is not here.
        """
        with self.path(name).open("rb") as file:
            return file.read(limit_bytes)

    def used_bytes(self) -> int:
        """What all of them have together."""
        return sum(entry.stat().st_size for entry in self._entries())

    def receive(self) -> BlobReceiver:
        """Begin to take in files."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return BlobReceiver(self._folder)

    def note_used(self, names: Iterable[str]) -> None:
        """Files that are here were used just now."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self.path(name))

    def remove_oldest(self, wanted_bytes: int, kept: Collection[str]) -> int:
        """Remove what was not used for longest until there are no more bytes than wanted; returns what is left."""
        found = [(entry.stat().st_mtime, entry.stat().st_size, entry) for entry in self._entries()]
        left = sum(size for _, size, _ in found)
        for _, size, entry in sorted(found, key=lambda each: each[0]):
            if left <= wanted_bytes:
                break
            if entry.name not in kept:
                self.path(entry.name).unlink()
                left -= size
        return left

    def remove_others(self, kept: Collection[str], unused_seconds: float) -> int:
        """Remove files that are not kept; returns their bytes.

        Args:
            kept: Names of those that stay.
            unused_seconds: How long a file must have been here, by the machine's clock: a younger one stays too.
        """
        found = self.unused(kept, unused_seconds)
        for name in found:
            self.path(name).unlink()
        return sum(found.values())

    def unused(self, kept: Collection[str], unused_seconds: float) -> dict[str, int]:
        """The files that :meth:`remove_others` would remove, each with its bytes."""
        found: dict[str, int] = {}
        for entry in self._entries():
            status = entry.stat()
            if entry.name not in kept and time.time() - status.st_mtime >= unused_seconds:
                found[entry.name] = status.st_size
        return found

    def remove_unfinished(self) -> None:
        """Remove what an earlier life has left half; only while nobody else receives."""
        for part in self._folder.glob(".*.part"):
            part.unlink()

    def _entries(self) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder) as entries:
                return [entry for entry in entries if is_sha256(entry.name)]
        except FileNotFoundError:
            return []


class BlobReceiver:
    """Takes in files one after the other, each in pieces; a context manager. What is not whole is not kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._name = ""
        self._missing = 0
        self._digest = hashlib.sha256()
        self._whole: list[tuple[Path, str]] = []
        self._whole_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        parts = [part for part, _ in self._whole]
        if self._file is not None:
            with contextlib.suppress(OSError):  # what is left in its buffer may find no room
                self._file.close()
            parts.append(Path(self._file.name))
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink()
        self._file = None
        self._whole.clear()

    @property
    def is_between_files(self) -> bool:
        """Whether the next piece begins a file."""
        return self._file is None

    def write(self, name: str, size_bytes: int, data: bytes) -> None:
        """Take in the next piece.

        Args:
            name: Of the file that it is a piece of: its SHA-256, hexadecimal.
            size_bytes: What that file has.
            data: What comes next of it.

        Raises:
            BlobError: It is not what was announced.
            OSError: The disk is full, or fails.
        """
        file = self._begin(name, size_bytes) if self._file is None else self._file
        if name != self._name:
            raise BlobError(f"{self._name} ends {self._missing} bytes too early")
        if len(data) > self._missing:
            raise BlobError(f"{name} has more bytes than were announced")
        file.write(data)
        self._digest.update(data)
        self._missing -= len(data)
        if not self._missing:
            self._end(file)

    def finish(self) -> None:
        """Keep for good what has arrived.

        Raises:
            BlobError: A file is not whole.
            OSError: The disk is full, or fails.
        """
        if self._file is not None:
            raise BlobError(f"{self._name} ends {self._missing} bytes too early")
        self._keep()

    def _begin(self, name: str, size_bytes: int) -> BinaryIO:
        if not is_sha256(name):
            raise BlobError(f"{name[:80]!r} is not a SHA-256 in hexadecimal")
        # A name of its own: somebody may be sending the same file.
        self._file = (self._folder / f".{name}.{secrets.token_hex(4)}.part").open("xb")
        self._name, self._missing, self._digest = name, size_bytes, hashlib.sha256()
        return self._file

    def _end(self, file: BinaryIO) -> None:
        if self._digest.hexdigest() != self._name:
            raise BlobError(f"{self._name} is not what was announced: its SHA-256 differs")
        self._whole_bytes += file.tell()
        file.close()  # if that fails, it is the one that is removed
        self._whole.append((Path(file.name), self._name))
        self._file = None
        if len(self._whole) >= _TOGETHER or self._whole_bytes >= _TOGETHER_BYTES:
            self._keep()

    def _keep(self) -> None:
        for part, _ in self._whole:
            with part.open("rb") as file:
                os.fsync(file.fileno())
        # In the order in which they came: whoever sends what leads to others last is never told that all are here.
        while self._whole:
            part, name = self._whole[0]
            part.replace(self._folder / name)
            self._whole.pop(0)
        self._whole_bytes = 0
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
