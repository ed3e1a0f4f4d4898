"""Contents of files, each kept once under the SHA-256 of what is in it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, BinaryIO, Self

from tiercel.broker.store.errors import no_space
from tiercel.core.errors import InvalidSpecError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_sha256(text: str) -> bool:
    """Whether this is a SHA-256, hexadecimal: safe in a path."""
    return _SHA256.fullmatch(text) is not None


class ContentStore:
    """Keeps contents in a folder. Who refers to them is somebody else's to know.

    Args:
        folder: Where they are; made when missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def has(self, sha256: str) -> bool:
        """Whether a content is here."""
        return self._path(sha256).exists()

    def begin(self, sha256: str, size_bytes: int) -> ContentWriter:
        """Begin to take in a content; one that is here already is replaced by the same.

        Raises:
            InvalidSpecError: That is no SHA-256.
            CannotWriteError: The disk is full.
        """
        return ContentWriter(self._path(sha256), size_bytes)

    def sync(self) -> None:
        """Make what was put in place since the last time survive a loss of power; blocks while the disk writes."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def open(self, sha256: str) -> BinaryIO:
        """Open a content; it may be removed while it is read.

        Raises:
            NotFoundError: It is not here.
        """
        try:
            return self._path(sha256).open("rb")
        except FileNotFoundError:
            raise NotFoundError(f"sha256: no content {sha256!r} is here any more", field="sha256") from None

    def remove(self, sha256: str) -> None:
        """Remove a content, if it is here."""
        self._path(sha256).unlink(missing_ok=True)

    def keep_only(self, contents: Collection[str]) -> None:
        """Remove what nobody refers to, and what was never finished."""
        for path in self._folder.iterdir():
            if path.name not in contents:
                path.unlink()

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The contents that are here, each with its size in bytes."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if is_sha256(entry.name):
                        yield entry.name, entry.stat(follow_symlinks=False).st_size

    def _path(self, sha256: str) -> Path:
        if not is_sha256(sha256):
            raise InvalidSpecError(f"sha256: {sha256[:80]!r} is no SHA-256 in hexadecimal", field="sha256")
        return self._folder / sha256


class ContentWriter:
    """Takes in one content; leaving its ``with`` block before :meth:`finish` leaves nothing behind.

    Args:
        target: Where it goes; named like its SHA-256.
        size_bytes: How large it is.
    """

    def __init__(self, target: Path, size_bytes: int) -> None:
        self._target = target
        # A name of its own: an agent tries again while what it sent before may still be on its way in.
        self._scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        self.missing_bytes = size_bytes
        self._digest = hashlib.sha256()
        with room_on(target.parent):
            self._file: BinaryIO = self._scratch.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What is left in its buffer may find no room, which was said before or does not matter any more.
        with contextlib.suppress(OSError):
            self._file.close()
        self._scratch.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Take in what comes next.

        Raises:
            InvalidSpecError: It is more than was announced.
            CannotWriteError: The disk is full.
        """
        if len(data) > self.missing_bytes:
            raise InvalidSpecError("data: there is more of it than was announced", field="data")
        with room_on(self._target.parent):
            self._file.write(data)
        self._digest.update(data)
        self.missing_bytes -= len(data)

    def finish(self) -> None:
        """Put it in place; blocks while the disk writes. It survives a loss of power once the folder was synced.

        Raises:
            InvalidSpecError: Something is missing, or it is not what was announced.
            CannotWriteError: The disk is full.
        """
        if self.missing_bytes:
            raise InvalidSpecError(f"data: a content ends {self.missing_bytes} bytes too early", field="data")
        if self._digest.hexdigest() != self._target.name:
            raise InvalidSpecError("data: a content is not what was announced: its SHA-256 differs", field="data")
        with room_on(self._target.parent):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._scratch.replace(self._target)


@contextlib.contextmanager
def room_on(folder: Path) -> Iterator[None]:
    """What is said of a disk that is full."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise no_space(str(folder)) from error
        raise
