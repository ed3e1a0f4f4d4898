"""Checkpoints between nodes, and copies for the case that one is lost: one file a job, whole or not there.

What nodes say of a checkpoint is checked as that of all files that are carried (:mod:`.carried`). A path is made of the
job's id alone, and that the broker has made.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from tiercel.broker.store.arrivals import Arrivals, Intake
from tiercel.broker.store.carried import (
    CHUNK_BYTES,
    Checkpoint,
    CheckpointFile,
    check_files,
    check_whole,
    read_manifest,
    sync,
)
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.errors import room_on
from tiercel.core.errors import NotFoundError, QuotaExceededError, StoreDamagedError, wrong_field

if TYPE_CHECKING:
    from pathlib import Path

# Of one checkpoint; the broker holds at most one for each job.
MAX_CHECKPOINT_BYTES = 1024**3
DEFAULT_CHECKPOINTS_BYTES = 50 * 1024**3
_JOB_ID = re.compile(r"[0-9a-z]{1,32}")
_RUN_ID = re.compile(r"([0-9a-z]{1,32})-[0-9]{1,9}")


class CheckpointStore:
    """Keeps checkpoints in a folder while jobs are moved, or train and ask for copies.

    Args:
        folder: Where the files are; made when missing.
        limit_bytes: The largest checkpoint that is taken.
        total_bytes: What all of them may have together.
        room: The disk's, where others share it.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int = MAX_CHECKPOINT_BYTES,
        total_bytes: int = DEFAULT_CHECKPOINTS_BYTES,
        room: DiskRoom | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._total_bytes = total_bytes
        self._room = room or DiskRoom(folder)
        self._arrivals = Arrivals(folder, self._room, total_bytes)

    def begin(self, run_id: str, files: Sequence[CheckpointFile], *, resumes: bool = False) -> Intake:
        """Begin to take in the checkpoint of a run; it replaces what is held of the same job once it is whole.

        Args:
            run_id: The run.
            files: What comes, in this order.
            resumes: Whether it may begin behind what is here of the same files.

        Raises:
            InvalidSpecError: What is announced is not taken; says why.
            QuotaExceededError: All of them together would have more than they may.
            CannotWriteError: The disk is full, or nearly.
        """
        match = _RUN_ID.fullmatch(run_id)
        if match is None:
            raise wrong_field("header.run_id", f"{run_id!r} is not the id of a run")
        check_files(files, self._limit_bytes)
        announced = Checkpoint(run_id, tuple(files))
        return self._arrivals.begin(match[1], announced, resumes=resumes, check=partial(self._check_bound, match[1]))

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

    def read(self, run_id: str, offset: int = 0) -> Iterator[bytes]:
        """The content of its files from an offset on, one after the other, in pieces of up to 256 KiB.

        Raises:
            NotFoundError: It is not here.
        """
        path = self._path(run_id.rpartition("-")[0])
        if path is None or self.find(run_id) is None:
            raise NotFoundError(f"run_id: there is no checkpoint of run {run_id!r}", field="run_id")
        with path.open("rb") as file:
            read_manifest(file)
            file.seek(offset, os.SEEK_CUR)
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
        self._check_bound(job_id, size_bytes)
        scratch = self._folder / f".{job_id}.{secrets.token_hex(4)}.part"
        try:
            with self._room.growing(scratch, size_bytes), room_on(self._folder):
                yield scratch
            check_whole(scratch, run_id, MAX_CHECKPOINT_BYTES)
            with contextlib.suppress(FileExistsError):
                os.link(scratch, path)
            sync(self._folder)
        finally:
            scratch.unlink(missing_ok=True)

    def _check_bound(self, job_id: str, wanted_bytes: int) -> None:
        if wanted_bytes + self._bytes_but_for(job_id) > self._total_bytes:
            raise QuotaExceededError(
                f"checkpoints: those that the broker keeps may have {self._total_bytes} bytes together, and this one "
                "does not fit; wait until other jobs are over, or give it more (TIERCEL_CHECKPOINTS_BYTES)",
                field="checkpoints",
            )

    def drop(self, job_id: str) -> None:
        """Remove what is held of a job, if anything, and what is on its way of it."""
        self._arrivals.drop(job_id)
        path = self._path(job_id)
        if path is not None:
            path.unlink(missing_ok=True)

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Remove what belongs to no job that could need it; what was never finished may be gone on with for a while."""
        for path in self._folder.iterdir():
            if not path.name.startswith(".") and path.name not in job_ids:
                path.unlink()

    def drop_left_over(self) -> None:
        """Remove what the broker's last life had taken in of checkpoints that nobody has gone on to send."""
        self._arrivals.drop_left_over()

    def _bytes_but_for(self, job_id: str) -> int:
        """What those of other jobs have, what is on its way in included."""
        with os.scandir(self._folder) as entries:
            return sum(_size_of(entry) for entry in entries if entry.name != job_id)

    def _path(self, job_id: str) -> Path | None:
        return self._folder / job_id if _JOB_ID.fullmatch(job_id) else None


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:  # it was finished or given up just now
        return 0
