"""Files that are carried over the broker: of checkpoints and versions, each in one file that says what it has.

What nodes say of them is believed no further than it was checked: names are plain, sizes are bounded and added up, and
the content has the hash that was announced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, BinaryIO, Self

from tiercel.broker.store.errors import room_on
from tiercel.core.errors import InvalidSpecError, StoreDamagedError, wrong_field

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 256 * 1024
MAX_FILES = 16
_MAX_MANIFEST_BYTES = 64 * 1024
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A file of a checkpoint."""

    name: str  # a plain file name
    size_bytes: int  # its size
    sha256: str  # of its content, hexadecimal


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that is here as a whole."""

    run_id: str  # the run that wrote it
    files: tuple[CheckpointFile, ...]  # its files, in the order of their content

    @property
    def size_bytes(self) -> int:
        """What all of its content has."""
        return sum(file.size_bytes for file in self.files)


class CheckpointWriter:
    """Takes in one checkpoint; leaving its ``with`` block before :meth:`finish` leaves nothing behind.

    Args:
        name: Of the file that it becomes; made by the broker.
        checkpoint: What comes.
        begun: The file that an earlier one has begun to write; None for a new one.
    """

    def __init__(self, folder: Path, name: str, checkpoint: Checkpoint, begun: Path | None = None) -> None:
        self._target = folder / name
        # A name of its own: an agent tries again while what it sent before may still be on its way in.
        self._scratch = begun or folder / f".{name}.{secrets.token_hex(4)}.part"
        self._checkpoint = checkpoint
        self._left = list(checkpoint.files)
        with room_on(folder):
            self._file: BinaryIO = self._scratch.open("wb" if begun is None else "r+b")
        self._begin = self._missing = 0
        self._digest = hashlib.sha256()

    def __enter__(self) -> Self:
        self.open()
        return self

    def open(self) -> None:
        """Begin; :meth:`finish` or :meth:`abandon` is to follow."""
        try:
            self._write_manifest()
        except BaseException:
            self.abandon()
            raise

    def _write_manifest(self) -> None:
        manifest = manifest_of(self._checkpoint)
        with room_on(self._target.parent):
            self._file.write(manifest)
        self._begin = len(manifest)
        self._next_file()

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Let go of it: what is not in place is removed."""
        # What is left in its buffer may find no room, which was said before or does not matter any more.
        with contextlib.suppress(OSError):
            self._file.close()
        self._scratch.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Take in what comes next.

        Raises:
            InvalidSpecError: It is more than was announced, or not what was announced.
            CannotWriteError: The disk is full.
        """
        with room_on(self._target.parent):
            self._file.write(data)
        while data:
            if not self._left:
                raise wrong_field("data", "there is more of it than was announced")
            part, data = data[: self._missing], data[self._missing :]
            self._digest.update(part)
            self._missing -= len(part)
            self._close_files_that_are_whole()

    @property
    def total_bytes(self) -> int:
        """How much was announced."""
        return self._checkpoint.size_bytes

    @property
    def missing_bytes(self) -> int:
        """How much of it has not come yet."""
        return self._missing + sum(file.size_bytes for file in self._left[1:])

    @property
    def expected_bytes(self) -> int:
        """How much is written of it still, see :class:`.DiskRoom`."""
        return 0 if self._file.closed else self.missing_bytes

    def finish(self) -> None:
        """Put it in place for good; blocks while the disk writes.

        Raises:
            InvalidSpecError: Something is missing.
            CannotWriteError: The disk is full.
        """
        self.flush()
        with room_on(self._target.parent):
            self._scratch.replace(self._target)
        sync(self._target.parent)

    def flush(self) -> None:
        """Have the disk write all of it; blocks.

        Raises:
            InvalidSpecError: Something is missing.
            CannotWriteError: The disk is full.
        """
        if self._left:
            raise wrong_field("data", f"{self._left[0].name} ends {self._missing} bytes too early")
        with room_on(self._target.parent):
            self._file.flush()
            os.fsync(self._file.fileno())

    def _next_file(self) -> None:
        self._digest = hashlib.sha256()
        self._missing = self._left[0].size_bytes if self._left else 0
        self._close_files_that_are_whole()

    def _close_files_that_are_whole(self) -> None:
        if self._left and not self._missing:
            file = self._left.pop(0)
            self._check_digest(file, self._digest.hexdigest())
            self._next_file()

    def _check_digest(self, file: CheckpointFile, sha256: str) -> None:
        if sha256 != file.sha256:
            raise wrong_field("data", f"{file.name} is not what was announced: its SHA-256 differs")


def sync(folder: Path) -> None:
    """Make it durable which files are in a folder."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_files(files: Sequence[CheckpointFile], limit_bytes: int) -> int:
    """What they have together, if that may be.

    Raises:
        InvalidSpecError: Says why it may not.
    """
    names = {file.name for file in files}
    if not files or len(files) > MAX_FILES or len(names) < len(files):
        raise wrong_field("header.files", f"it has 1 to {MAX_FILES} files, each with a name of its own")
    for file in files:
        if not _FILE_NAME.fullmatch(file.name) or not _SHA256.fullmatch(file.sha256):
            raise wrong_field("header.files", f"{file.name[:128]!r} needs a plain file name and a SHA-256")
    total = sum(file.size_bytes for file in files)
    if total > limit_bytes:
        raise wrong_field("header.files", f"it has {total} bytes; at most {limit_bytes} are carried")
    return total


def manifest_of(checkpoint: Checkpoint, size_bytes: int = 0) -> bytes:
    """What a file begins with that holds these files, padded to so many bytes."""
    manifest = {"run_id": checkpoint.run_id, "files": [asdict(file) for file in checkpoint.files]}
    return json.dumps(manifest).encode().ljust(size_bytes - 1) + b"\n"


def read_manifest(file: BinaryIO) -> Checkpoint:
    """What a file holds; it is then read up to where the content begins."""
    manifest = json.loads(file.readline(_MAX_MANIFEST_BYTES))
    return Checkpoint(manifest["run_id"], tuple(CheckpointFile(**entry) for entry in manifest["files"]))


def check_whole(path: Path, key: str, limit_bytes: int) -> Checkpoint:
    """Check that a file holds the checkpoint of a run, or what else has that key, and all of it; returns what it has.

    Raises:
        StoreDamagedError: It does not.
    """
    with path.open("rb") as file:
        try:
            checkpoint = read_manifest(file)
            wanted = file.tell() + check_files(checkpoint.files, limit_bytes)
        except (ValueError, KeyError, TypeError, RecursionError, InvalidSpecError) as error:
            raise StoreDamagedError(f"what came back as the files of {key} has none") from error
        if checkpoint.run_id != key or path.stat().st_size != wanted:
            raise StoreDamagedError(f"what came back as the files of {key} is something else, or not all of it")
    return checkpoint
