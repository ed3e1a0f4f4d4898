"""Output of runs, as far as the broker has it: appended to by offset, with the beginning and the end of each kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
from typing import TYPE_CHECKING

from tiercel.core.errors import LeaseLostError
from tiercel.core.kept_output import KeptOutput

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024
# On the disk before output that it did not take is asked for again.
ROOM_BYTES = 1024 * 1024
# Runs that are remembered for that.
MAX_REFUSED = 1_000
_MAX_OFFSET = 2**53
_RUN_ID = re.compile(r"[0-9a-z]{1,32}-[0-9]{1,9}")


class RunLogs:
    """Keeps the output of runs in a folder.

    Nodes send output again after a reconnection; what is there already is not written twice. Of each run the first and
    the last 8 MiB are kept, so a gap is taken behind the first alone. What a full disk does not take is not waited for,
    since nodes have more important things to say; once there is room they are asked for it again.

    Args:
        folder: Where the files are; made when missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._grown = asyncio.Condition()
        # Runs of which the disk did not take something: at most those that were heard of meanwhile.
        self._refused: set[str] = set()

    def size(self, run_id: str) -> int:
        """Bytes of the run's output up to the last that is here."""
        output = self._output(run_id)
        return output.size if output is not None else 0

    async def append(self, run_id: str, offset: int, data: bytes) -> None:
        """Take in ``data``, which begins ``offset`` bytes into the run's output; what is not an id names no run.

        Raises:
            LeaseLostError: The disk did not take what came before and has room by now: the node has to send it again.
        """
        output = self._output(run_id)
        if output is None or offset > _MAX_OFFSET:
            return
        have = output.size
        if offset > have and not self._takes_gap(run_id, output):
            return
        fresh = data[max(0, have - offset) :]
        if not fresh:
            return
        try:
            output.write_at(max(offset, have), fresh)
        except OSError as error:
            self._note_refused(run_id, error)
            return
        self._refused.discard(run_id)
        async with self._grown:
            self._grown.notify_all()

    def _takes_gap(self, run_id: str, output: KeptOutput) -> bool:
        """Whether output is taken that does not go on where the run's ends."""
        if run_id not in self._refused:
            return output.head_is_full
        if shutil.disk_usage(self._folder).free >= ROOM_BYTES:
            self._refused.discard(run_id)
            raise LeaseLostError(f"output of run {run_id} found no room on the broker's disk; connect again to send it")
        return False

    def _note_refused(self, run_id: str, error: OSError) -> None:
        if run_id not in self._refused:
            logger.warning("output of run %s cannot be kept: %s", run_id, error)
        if len(self._refused) < MAX_REFUSED:
            self._refused.add(run_id)

    def read(self, run_id: str, offset: int) -> tuple[int, bytes]:
        """Up to 64 KiB of the run's output from ``offset`` on, or from where what is kept goes on behind it.

        Returns:
            Where they begin, and the bytes; none at the end.
        """
        output = self._output(run_id)
        return output.read(offset, CHUNK_BYTES) if output is not None else (offset, b"")

    def sizes(self) -> dict[str, int]:
        """What the output of each run takes on the disk, in bytes; blocks while the disk works."""
        found: dict[str, int] = {}
        for path in self._folder.iterdir():
            run_id = path.name.removesuffix(".tail").removesuffix(".log")
            if _RUN_ID.fullmatch(run_id):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    pieces = list(path.iterdir()) if path.is_dir() else [path]
                    found[run_id] = found.get(run_id, 0) + sum(piece.stat().st_size for piece in pieces)
        return found

    def remove(self, job_id: str) -> None:
        """Remove the output of all runs of a job; blocks while the disk works."""
        for run_id in [run_id for run_id in self.sizes() if run_id.rpartition("-")[0] == job_id]:
            KeptOutput(self._folder / f"{run_id}.log").remove()

    async def wait_grown(self, run_id: str, offset: int, timeout: float) -> None:
        """Wait until there is output beyond ``offset``, or for ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout), self._grown:
                await self._grown.wait_for(lambda: self.size(run_id) > offset)
        except TimeoutError:
            return

    def _output(self, run_id: str) -> KeptOutput | None:
        # Run ids are made by the broker; a node that sends another one must not choose a path.
        return KeptOutput(self._folder / f"{run_id}.log") if _RUN_ID.fullmatch(run_id) else None
