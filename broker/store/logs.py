"""Output of runs, as far as the broker has it: one file a run, appended to by offset."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from typing import TYPE_CHECKING

from tiercel.broker.domain.errors import LeaseLostError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024
# Of each run; a script that prints without end must not fill the disk.
MAX_RUN_BYTES = 64 * 1024 * 1024
# On the disk before output that it did not take is asked for again.
ROOM_BYTES = 1024 * 1024
# Runs that are remembered for that.
MAX_REFUSED = 1_000
_RUN_ID = re.compile(r"[0-9a-z]{1,32}-[0-9]{1,9}")


class RunLogs:
    """Keeps the output of runs in a folder.

    Nodes send output again after a reconnection; what is there already is not written twice, what would leave a gap is
    not taken, and neither is what comes after the first 64 MiB. What a full disk does not take is not waited for, since
    nodes have more important things to say; once there is room they are asked for it again.

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
        """Bytes of the run's output that are here."""
        path = self._path(run_id)
        return path.stat().st_size if path is not None and path.exists() else 0

    async def append(self, run_id: str, offset: int, data: bytes) -> None:
        """Take in ``data``, which begins ``offset`` bytes into the run's output; what is not an id names no run.

        Raises:
            LeaseLostError: The disk did not take what came before and has room by now: the node has to send it again.
        """
        path = self._path(run_id)
        have = self.size(run_id)
        if offset > have and run_id in self._refused and shutil.disk_usage(self._folder).free >= ROOM_BYTES:
            self._refused.discard(run_id)
            raise LeaseLostError(f"output of run {run_id} found no room on the broker's disk; connect again to send it")
        fresh = data[have - offset : MAX_RUN_BYTES - offset] if offset <= have < MAX_RUN_BYTES else b""
        if path is None or not fresh:
            return
        try:
            with path.open("ab") as file:
                file.write(fresh)
        except OSError as error:
            self._note_refused(run_id, error)
            return
        self._refused.discard(run_id)
        async with self._grown:
            self._grown.notify_all()

    def _note_refused(self, run_id: str, error: OSError) -> None:
        if run_id not in self._refused:
            logger.warning("output of run %s cannot be kept: %s", run_id, error)
        if len(self._refused) < MAX_REFUSED:
            self._refused.add(run_id)

    def read(self, run_id: str, offset: int) -> bytes:
        """Up to 64 KiB of the run's output from ``offset`` on; empty at the end."""
        path = self._path(run_id)
        if path is None or offset >= self.size(run_id):
            return b""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)

    async def wait_grown(self, run_id: str, offset: int, timeout: float) -> None:
        """Wait until there is output beyond ``offset``, or for ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout), self._grown:
                await self._grown.wait_for(lambda: self.size(run_id) > offset)
        except TimeoutError:
            return

    def _path(self, run_id: str) -> Path | None:
        # Run ids are made by the broker; a node that sends another one must not choose a path.
        return self._folder / f"{run_id}.log" if _RUN_ID.fullmatch(run_id) else None
