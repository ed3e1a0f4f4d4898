"""Checkpoints and versions on their way in: one that is broken off goes on where it ended.

Where the broker ended as well, its next life goes on with the file that it left (:class:`Leftovers`). What is here of a
version is passed on already; the last byte is passed on once all of it is here, checked and durable: who has all of it
has one that the broker has as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from tiercel.broker.store.carried import CHUNK_BYTES, Checkpoint, CheckpointWriter, read_manifest
from tiercel.broker.store.errors import room_on
from tiercel.core.errors import CannotWriteError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tiercel.broker.store.carried import CheckpointFile
    from tiercel.broker.store.disk_room import DiskRoom

# Of a version of which nothing more comes: who reads it asks again, and goes on where it was.
_STILL_SECONDS: Final = 10.0
_MAX_LEFT: Final = 16


class Arrivals:
    """All that is on its way into a folder, one at a time under each name.

    Args:
        folder: Where it is; what was never finished stays until :meth:`drop_left_over`, as far as it is of use.
        room: The disk's.
        most_left_bytes: What all that the last life had begun may have together.
    """

    def __init__(self, folder: Path, room: DiskRoom, most_left_bytes: int) -> None:
        self._folder = folder
        self._room = room
        self._arriving: dict[str, Arrival] = {}
        self._leftovers = Leftovers(folder, most_left_bytes)

    def begin(
        self, name: str, announced: Checkpoint, *, resumes: bool, check: Callable[[int], None] = lambda _: None
    ) -> Intake:
        """Begin to take in what gets a name, or go on with it.

        Args:
            name: Of the file that it becomes.
            announced: What comes.
            resumes: Whether it may begin behind what is here of the same files.
            check: Told how many bytes are still to come; raises where they may not.

        Raises:
            CannotWriteError: The disk is full, or nearly.
        """
        known = self._arriving.get(name)
        if known is not None and not (resumes and known.goes_on_with(announced)):
            if not known.is_finishing:
                known.drop()
            known = None
        if known is not None:
            known.end_call()  # the one before, of which nothing more is taken in a moment
            here_bytes = known.here_bytes
        else:
            here_bytes = self._leftovers.bytes_of(name, announced) if resumes else 0
        wanted_bytes = announced.size_bytes - here_bytes
        check(wanted_bytes)
        if known is not None:
            self._room.check(wanted_bytes)
        else:
            known = self._room.begin(wanted_bytes, lambda: self._arrival(name, announced, resumes=resumes))
            self._arriving[name] = known
        return Intake(known, lambda: self._forget(name, known))

    def get(self, name: str) -> Arrival | None:
        """What is on its way under a name, or is to come next, as it was not what it should be; or None."""
        return self._arriving.get(name)

    def all(self) -> Mapping[str, Arrival]:
        """The same of all, by name."""
        return self._arriving

    def drop(self, name: str) -> None:
        """Let go of what is on its way under a name, if anything is."""
        if (arrival := self._arriving.pop(name, None)) is not None:
            arrival.drop()

    def drop_left_over(self) -> None:
        """Remove what the broker's last life had taken in and nobody has gone on to send."""
        self._leftovers.drop()

    def _arrival(self, name: str, announced: Checkpoint, *, resumes: bool) -> Arrival:
        left_over = self._leftovers.take(name, announced if resumes else None)
        return Arrival(self._folder, name, announced, left_over)

    def _forget(self, name: str, arrival: Arrival) -> None:
        if self._arriving.get(name) is arrival:
            del self._arriving[name]


class Arrival(CheckpointWriter):
    """A checkpoint or version that calls bring, one after the other until it is whole.

    Args:
        name: Of its file.
        announced: What comes.
        begun: What an earlier life of the broker left of it, with the same files; None where nothing is here yet.

    Attributes:
        is_finishing: Whether all of it came, and the disk is at it.
        is_open: Whether more of it may come, and what has come can be read.
    """

    def __init__(self, folder: Path, name: str, announced: Checkpoint, begun: Path | None = None) -> None:
        super().__init__(folder, name, announced, begun)
        self._is_taken_up = begun is not None
        self.is_finishing = False
        self._call = 0
        self._is_called = False
        self._is_whole = False
        self.is_open = True
        self._changed = asyncio.Event()
        self.open()

    @property
    def files(self) -> tuple[CheckpointFile, ...]:
        """What was announced."""
        return self._checkpoint.files

    @property
    def expected_bytes(self) -> int:
        """See :class:`CheckpointWriter`; nothing while no call brings it."""
        return super().expected_bytes if self._is_called else 0

    @property
    def here_bytes(self) -> int:
        """How much of its content has come."""
        return self.total_bytes - self.missing_bytes

    @property
    def path(self) -> Path:
        """The file that it is written to, which begins with what is said of it."""
        return self._scratch

    def goes_on_with(self, announced: Checkpoint) -> bool:
        """Whether a call that brings this may begin behind what is here."""
        return self.is_open and not self.is_finishing and self._checkpoint == announced

    def begin_call(self) -> int:
        """A call brings more of it; earlier ones must not any more. Its number."""
        self._call += 1
        self._is_called = True
        return self._call

    def end_call(self) -> None:
        """Nothing more comes of it for now."""
        self._is_called = False

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
    """What an earlier life of the broker took in, until somebody goes on with it; a few, by their age.

    Args:
        folder: Where it is; all of it that is of no use is removed.
        most_bytes: What all of it may have together; of more the newest stays.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._paths: dict[str, tuple[Checkpoint, Path]] = {}
        parts = [path for path in folder.iterdir() if path.name.startswith(".")]
        for path in sorted(parts, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            name, begun = path.name[1:].rsplit(".", 2)[0], _begun(path)
            most_bytes -= path.stat().st_size
            if begun is None or name in self._paths or most_bytes < 0 or len(self._paths) == _MAX_LEFT:
                path.unlink()
            else:
                self._paths[name] = begun, path

    def take(self, name: str, announced: Checkpoint | None) -> Path | None:
        """What there is of this under a name, which is the caller's from now on; anything else of it is removed."""
        begun, path = self._paths.pop(name, (None, None))
        if path is not None and begun != announced:
            path.unlink()
            return None
        return path

    def bytes_of(self, name: str, announced: Checkpoint) -> int:
        """How much there is of this."""
        begun, path = self._paths.get(name, (None, None))
        return 0 if path is None or begun != announced else path.stat().st_size

    def drop(self) -> None:
        """Remove what is left."""
        while self._paths:
            self._paths.popitem()[1][1].unlink()


def _begun(path: Path) -> Checkpoint | None:
    """What a file is a part of; None where it is of no use."""
    try:
        with path.open("rb") as file:
            begun = read_manifest(file)
            begins = file.tell()
            is_part = 0 < file.seek(0, os.SEEK_END) - begins <= begun.size_bytes
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return begun if is_part else None


def _digest_of(file: BinaryIO, size_bytes: int) -> str:
    digest = hashlib.sha256()
    while size_bytes and (piece := file.read(min(size_bytes, CHUNK_BYTES))):
        digest.update(piece)
        size_bytes -= len(piece)
    return digest.hexdigest()


class Intake:
    """What one call brings of a checkpoint or version, from where the last one ended.

    Where the call is broken off, what has come stays for the next one; where it brings what is wrong, or the disk is
    full, nothing stays.

    Args:
        finished: Called when all of it is in place.

    Attributes:
        offset_bytes: How much was here before it.
    """

    def __init__(self, arrival: Arrival, finished: Callable[[], None]) -> None:
        self._arrival = arrival
        self._finished = finished
        self._number = arrival.begin_call()
        self.offset_bytes = arrival.here_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        is_broken_off = isinstance(error, (UnavailableError, asyncio.CancelledError))
        stays = is_broken_off and not isinstance(error, CannotWriteError) and not self._arrival.is_finishing
        if error is None and self._arrival.is_finishing:
            self._arrival.settle()
            self._finished()
        elif self._arrival.is_call(self._number):
            self._arrival.end_call() if stays else self._arrival.drop()

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
            raise UnavailableError("another call brings it by now, or nobody needs it any more")
