"""Versions on their way in: one that is broken off goes on where it ended, and what is here of it is passed on already.

Where the broker ended as well, its next life goes on with the file that it left (:class:`Leftovers`).

The last byte is passed on once all of it is here, checked and durable: who has all of a version has one that the broker
has as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from tiercel.broker.store.checkpoints import (
    CHUNK_BYTES,
    Checkpoint,
    CheckpointFile,
    CheckpointWriter,
    read_manifest,
)
from tiercel.broker.store.errors import room_on
from tiercel.core.errors import CannotWriteError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Of a version of which nothing more comes: who reads it asks again, and goes on where it was.
_STILL_SECONDS: Final = 10.0
_MAX_LEFT: Final = 16


class Arrival(CheckpointWriter):
    """A version that calls bring, one after the other until it is whole.

    Args:
        key: Names its file.
        files: What was announced.
        begun: What an earlier life of the broker left of it, with the same files; None where nothing is here yet.

    Attributes:
        files: What was announced.
        is_finishing: Whether all of it came, and the disk is at it.
        is_open: Whether more of it may come, and what has come can be read.
    """

    def __init__(self, folder: Path, key: str, files: Sequence[CheckpointFile], begun: Path | None = None) -> None:
        self.files = tuple(files)
        super().__init__(folder, key, Checkpoint(key, self.files), begun)
        self._is_taken_up = begun is not None
        self.is_finishing = False
        self._call = 0
        self._is_whole = False
        self.is_open = True
        self._changed = asyncio.Event()
        self.open()

    @property
    def here_bytes(self) -> int:
        """How much of its content has come."""
        return self.total_bytes - self.missing_bytes

    @property
    def path(self) -> Path:
        """The file that it is written to, which begins with what is said of it."""
        return self._scratch

    def goes_on_with(self, files: Sequence[CheckpointFile]) -> bool:
        """Whether a call that brings these files may begin behind what is here."""
        return self.is_open and not self.is_finishing and self.files == tuple(files)

    def begin_call(self) -> int:
        """A call brings more of it; earlier ones must not any more. Its number."""
        self._call += 1
        return self._call

    def is_call(self, number: int) -> bool:
        """Whether a call may still bring more of it."""
        return self._call == number and self.is_open

    def write(self, data: bytes) -> None:
        """See :meth:`CheckpointWriter.write`; who reads it has it then."""
        super().write(data)
        self._show()
        self._tell()

    def settle(self) -> None:
        """Another file of its name is in place: this one, if it was finished."""
        self._is_whole = self.is_finishing and not self._scratch.exists()
        self.drop()

    def drop(self) -> None:
        """Let go of it; what is not in place is removed, and who reads it asks again."""
        if self.is_open:
            self.is_open = False
            self.abandon()
            self._tell()

    async def wait_beyond(self, offset: int) -> int:
        """How far its content may be read, once that is beyond an offset.

        Raises:
            UnavailableError: Nothing more comes.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STILL_SECONDS):
                while self.is_open:
                    if (here := min(self.here_bytes, self.total_bytes - 1)) > offset:
                        return here
                    await self._changed.wait()
        if self._is_whole:
            return self.total_bytes
        raise UnavailableError("the rest of this version is not here yet; try again")

    def finish(self) -> None:
        """See :meth:`CheckpointWriter.finish`; what an earlier life of the broker took in is checked before."""
        if self._is_taken_up and not self.missing_bytes:
            with self._scratch.open("rb") as file:
                read_manifest(file)
                for each in self.files:
                    super()._check_digest(each, _digest_of(file, each.size_bytes))
        super().finish()

    def _write_manifest(self) -> None:
        if self._is_taken_up:
            self._take_up()
            return
        super()._write_manifest()
        self._show()  # whoever reads it begins there

    def _take_up(self) -> None:
        read_manifest(self._file)
        self._begin = self._file.tell()
        here = self._file.seek(0, os.SEEK_END) - self._begin
        while self._left and here >= self._left[0].size_bytes:
            here -= self._left.pop(0).size_bytes
        self._missing = self._left[0].size_bytes - here if self._left else 0

    def _check_digest(self, file: CheckpointFile, sha256: str) -> None:
        if not self._is_taken_up:  # else when all of it is here
            super()._check_digest(file, sha256)

    def _show(self) -> None:
        with room_on(self._target.parent):
            self._file.flush()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Leftovers:
    """What an earlier life of the broker took in of versions, until somebody goes on with it; a few, by their age.

    Args:
        folder: Where it is; all of it that is of no use is removed.
        most_bytes: What all of it may have together; of more the newest stays.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._paths: dict[Checkpoint, Path] = {}
        parts = [path for path in folder.iterdir() if path.name.startswith(".")]
        for path in sorted(parts, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            begun = _begun(path)
            most_bytes -= path.stat().st_size
            if begun is None or begun in self._paths or most_bytes < 0 or len(self._paths) == _MAX_LEFT:
                path.unlink()
            else:
                self._paths[begun] = path

    def take(self, key: str, files: Sequence[CheckpointFile]) -> Path | None:
        """What there is of these files, which is the caller's from now on; others of that key are removed."""
        path = self._paths.pop(Checkpoint(key, tuple(files)), None)
        for each in [each for each in self._paths if each.run_id == key]:
            self._paths.pop(each).unlink()
        return path

    def bytes_of(self, key: str, files: Sequence[CheckpointFile]) -> int:
        """How much there is of these files."""
        path = self._paths.get(Checkpoint(key, tuple(files)))
        return 0 if path is None else path.stat().st_size

    def drop(self) -> None:
        """Remove what is left."""
        while self._paths:
            self._paths.popitem()[1].unlink()


def _begun(path: Path) -> Checkpoint | None:
    """What a file is a part of; None where it is of no use."""
    try:
        with path.open("rb") as file:
            begun = read_manifest(file)
            begins = file.tell()
            total = sum(each.size_bytes for each in begun.files)
            is_part = 0 < file.seek(0, os.SEEK_END) - begins <= total
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return begun if is_part and path.name.startswith(f".{begun.run_id}.") else None


def _digest_of(file: BinaryIO, size_bytes: int) -> str:
    digest = hashlib.sha256()
    while size_bytes and (piece := file.read(min(size_bytes, CHUNK_BYTES))):
        digest.update(piece)
        size_bytes -= len(piece)
    return digest.hexdigest()


class Intake:
    """What one call brings of a version, from where the last one ended.

    Where the call is broken off, what has come stays for the next one; where it brings what is wrong, or the disk is
    full, nothing stays.

    Attributes:
        offset_bytes: How much was here before it.
    """

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival
        self._number = arrival.begin_call()
        self.offset_bytes = arrival.here_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        is_broken_off = isinstance(error, (UnavailableError, asyncio.CancelledError))
        stays = is_broken_off and not isinstance(error, CannotWriteError) and not self._arrival.is_finishing
        if error is None and self._arrival.is_finishing:
            return  # the store is told
        if self._arrival.is_call(self._number) and not stays:
            self._arrival.drop()

    def write(self, data: bytes) -> None:
        """Take in what comes next.

        Raises:
            InvalidSpecError: It is more than was announced, or not what was announced.
            CannotWriteError: The disk is full.
            UnavailableError: A later call brings it by now, or nobody needs it any more.
        """
        self._check()
        self._arrival.write(data)

    def finish(self) -> None:
        """Put it in place for good; blocks while the disk writes.

        Raises:
            InvalidSpecError: Something is missing.
            CannotWriteError: The disk is full.
            UnavailableError: A later call brings it by now, or nobody needs it any more.
        """
        self._check()
        self._arrival.is_finishing = True
        self._arrival.finish()

    def _check(self) -> None:
        if not self._arrival.is_call(self._number):
            raise UnavailableError("another call brings this version by now, or nobody needs it any more")
