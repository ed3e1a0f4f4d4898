"""Versions on their way in: one that is broken off goes on where it ended, and what is here of it is passed on already.

The last byte is passed on once all of it is here, checked and durable: who has all of a version has one that the broker
has as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Self

from tiercel.broker.store.checkpoints import Checkpoint, CheckpointFile, CheckpointWriter, room_on
from tiercel.core.errors import CannotWriteError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Of a version of which nothing more comes: who reads it asks again, and goes on where it was.
_STILL_SECONDS: Final = 10.0


class Arrival(CheckpointWriter):
    """A version that calls bring, one after the other until it is whole.

    Args:
        key: Names its file.

    Attributes:
        files: What was announced.
        is_finishing: Whether all of it came, and the disk is at it.
        is_open: Whether more of it may come, and what has come can be read.
    """

    def __init__(self, folder: Path, key: str, files: Sequence[CheckpointFile]) -> None:
        self.files = tuple(files)
        super().__init__(folder, key, Checkpoint(key, self.files))
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

    def _write_manifest(self) -> None:
        super()._write_manifest()
        self._show()  # whoever reads it begins there

    def _show(self) -> None:
        with room_on(self._target.parent):
            self._file.flush()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


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
