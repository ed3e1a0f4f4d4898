"""Output of runs, as far as the broker has it: one file a run, appended to by offset."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 64 * 1024
# Of each run; a script that prints without end must not fill the disk.
MAX_RUN_BYTES = 64 * 1024 * 1024
_RUN_ID = re.compile(r"[0-9a-z]{1,32}-[0-9]{1,9}")


class RunLogs:
    """Keeps the output of runs in a folder.

    Nodes send output again after a reconnection; what is there already is not written twice, what would leave a gap is
    not taken, and neither is what comes after the first 64 MiB.

    Args:
        folder: Where the files are; made when missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._grown = asyncio.Condition()

    def size(self, run_id: str) -> int:
        """Bytes of the run's output that are here."""
        path = self._path(run_id)
        return path.stat().st_size if path is not None and path.exists() else 0

    async def append(self, run_id: str, offset: int, data: bytes) -> None:
        """Take in ``data``, which begins ``offset`` bytes into the run's output; what is not an id names no run."""
        path = self._path(run_id)
        have = self.size(run_id)
        fresh = data[have - offset : MAX_RUN_BYTES - offset] if offset <= have < MAX_RUN_BYTES else b""
        if path is None or not fresh:
            return
        with path.open("ab") as file:
            file.write(fresh)
        async with self._grown:
            self._grown.notify_all()

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
