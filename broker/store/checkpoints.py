"""Checkpoints between nodes, and copies for the case that one is lost: one file a job, whole or not there.

What nodes say of a checkpoint is believed no further than it was checked: names are plain, sizes are bounded and added
up, and the content has the hash that was announced. A path is made of the job's id alone, and that the broker has made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, BinaryIO, Self

from tiercel.broker.store.errors import no_space, room_on
from tiercel.core.errors import (
    InvalidSpecError,
    NotFoundError,
    QuotaExceededError,
    StoreDamagedError,
    wrong_field,
)

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 256 * 1024
MAX_FILES = 16
# Of one checkpoint; the broker holds at most one for each job.
MAX_CHECKPOINT_BYTES = 1024**3
DEFAULT_CHECKPOINTS_BYTES = 50 * 1024**3
RESERVE_BYTES = 512 * 1024**2
_MAX_MANIFEST_BYTES = 64 * 1024
_JOB_ID = re.compile(r"[0-9a-z]{1,32}")
_RUN_ID = re.compile(r"([0-9a-z]{1,32})-[0-9]{1,9}")
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


class CheckpointStore:
    """Keeps checkpoints in a folder while jobs are moved, or train and ask for copies.

    Args:
        folder: Where the files are; made when missing.
        limit_bytes: The largest checkpoint that is taken.
        total_bytes: What all of them may have together.
        reserve_bytes: What they leave of the disk: the broker's database is there, too.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int = MAX_CHECKPOINT_BYTES,
        total_bytes: int = DEFAULT_CHECKPOINTS_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._total_bytes = total_bytes
        self._reserve_bytes = reserve_bytes

    def begin(self, run_id: str, files: Sequence[CheckpointFile]) -> CheckpointWriter:
        """Begin to take in the checkpoint of a run; it replaces what is held of the same job once it is whole.

        Raises:
            InvalidSpecError: What is announced is not taken; says why.
            QuotaExceededError: All of them together would have more than they may.
            CannotWriteError: The disk is full, or nearly.
        """
        match = _RUN_ID.fullmatch(run_id)
        if match is None:
            raise wrong_field("header.run_id", f"{run_id!r} is not the id of a run")
        self._check_room(match[1], check_files(files, self._limit_bytes))
        return CheckpointWriter(self._folder, match[1], Checkpoint(run_id, tuple(files)))

    def find(self, run_id: str) -> Checkpoint | None:
        """What is held of a run, or None."""
        checkpoint = self.find_of_job(run_id.rpartition("-")[0])
        return checkpoint if checkpoint is not None and checkpoint.run_id == run_id else None

    def find_of_job(self, job_id: str) -> Checkpoint | None:
        """What is held of a job, or None."""
        path = self._path(job_id)
        if path is None or not path.exists():
            return None
        with path.open("rb") as file:
            return read_manifest(file)

    def read(self, run_id: str) -> Iterator[bytes]:
        """The content of its files, one after the other, in pieces of up to 256 KiB.

        Raises:
            NotFoundError: It is not here.
        """
        path = self._path(run_id.rpartition("-")[0])
        if path is None or self.find(run_id) is None:
            raise NotFoundError(f"run_id: there is no checkpoint of run {run_id!r}", field="run_id")
        with path.open("rb") as file:
            read_manifest(file)
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def open_whole(self, job_id: str) -> BinaryIO | None:
        """The file that holds a job's checkpoint with what is said of it, or None; it is replaced, never changed."""
        path = self._path(job_id)
        try:
            return path.open("rb") if path is not None else None
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def taking_back(self, run_id: str, size_bytes: int) -> Iterator[Path]:
        """Where to put a file that :meth:`open_whole` gave out once; held when the block is left, unless it fails.

        What came meanwhile of the same job stays.

        Args:
            run_id: The run whose checkpoint it is.
            size_bytes: What the file has.

        Raises:
            QuotaExceededError: All of them together would have more than they may.
            CannotWriteError: The disk is full, or nearly.
            StoreDamagedError: After the block: it is not what it should be.
        """
        job_id = run_id.rpartition("-")[0]
        path = self._path(job_id)
        if path is None:
            raise StoreDamagedError(f"{run_id!r} is not the id of a run")
        self._check_room(job_id, size_bytes)
        scratch = self._folder / f".{job_id}.{secrets.token_hex(4)}.part"
        try:
            with room_on(self._folder):
                yield scratch
            check_whole(scratch, run_id, MAX_CHECKPOINT_BYTES)
            with contextlib.suppress(FileExistsError):
                os.link(scratch, path)
            _sync(self._folder)
        finally:
            scratch.unlink(missing_ok=True)

    def _check_room(self, job_id: str, wanted_bytes: int) -> None:
        if wanted_bytes + self._bytes_but_for(job_id) > self._total_bytes:
            raise QuotaExceededError(
                f"checkpoints: those that the broker keeps may have {self._total_bytes} bytes together, and this one "
                "does not fit; wait until other jobs are over, or give it more (TIERCEL_CHECKPOINTS_BYTES)",
                field="checkpoints",
            )
        check_reserve(self._folder, wanted_bytes, self._reserve_bytes)

    def drop(self, job_id: str) -> None:
        """Remove what is held of a job, if anything."""
        path = self._path(job_id)
        if path is not None:
            path.unlink(missing_ok=True)

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Remove what belongs to no job that could need it, and what was never finished."""
        for path in self._folder.iterdir():
            if path.name not in job_ids:
                path.unlink()

    def _bytes_but_for(self, job_id: str) -> int:
        """What those of other jobs have, what is on its way in included."""
        with os.scandir(self._folder) as entries:
            return sum(_size_of(entry) for entry in entries if entry.name != job_id)

    def _path(self, job_id: str) -> Path | None:
        return self._folder / job_id if _JOB_ID.fullmatch(job_id) else None


class CheckpointWriter:
    """Takes in one checkpoint; leaving its ``with`` block before :meth:`finish` leaves nothing behind.

    Args:
        job_id: The job; made by the broker.
        begun: The file that an earlier one has begun to write; None for a new one.
    """

    def __init__(self, folder: Path, job_id: str, checkpoint: Checkpoint, begun: Path | None = None) -> None:
        self._target = folder / job_id
        # A name of its own: an agent tries again while what it sent before may still be on its way in.
        self._scratch = begun or folder / f".{job_id}.{secrets.token_hex(4)}.part"
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
        return sum(file.size_bytes for file in self._checkpoint.files)

    @property
    def missing_bytes(self) -> int:
        """How much of it has not come yet."""
        return self._missing + sum(file.size_bytes for file in self._left[1:])

    def finish(self) -> None:
        """Put it in place for good; blocks while the disk writes.

        Raises:
            InvalidSpecError: Something is missing.
            CannotWriteError: The disk is full.
        """
        self.flush()
        with room_on(self._target.parent):
            self._scratch.replace(self._target)
        _sync(self._target.parent)

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


def _sync(folder: Path) -> None:
    """Make it durable which files are in a folder."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:  # it was finished or given up just now
        return 0


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


def check_reserve(folder: Path, wanted_bytes: int, reserve_bytes: int) -> None:
    """Check that a disk has something left when it has taken so much.

    Raises:
        CannotWriteError: It has not.
    """
    if shutil.disk_usage(folder).free - wanted_bytes < reserve_bytes:
        raise no_space(str(folder))


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
