"""Output of runs, as far as the broker has it: one file a run, appended to by offset."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 64 * 1024


class RunLogs:
    """Keeps the output of runs in a folder.

    Nodes send output again after a reconnection; what is there already is not written twice, and what would leave a
    gap is not taken.

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
        return path.stat().st_size if path.exists() else 0

    async def append(self, run_id: str, offset: int, data: bytes) -> None:
        """Take in ``data``, which begins ``offset`` bytes into the run's output."""
        have = self.size(run_id)
        if offset > have or offset + len(data) <= have:
            return
        with self._path(run_id).open("ab") as file:
            file.write(data[have - offset :])
        async with self._grown:
            self._grown.notify_all()

    def read(self, run_id: str, offset: int) -> bytes:
        """Up to 64 KiB of the run's output from ``offset`` on; empty at the end."""
        path = self._path(run_id)
        if not path.exists():
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

    def _path(self, run_id: str) -> Path:
        # Run ids are made by the broker; a node that sends another one must not choose a path.
        if not run_id.replace("-", "").isalnum():
            raise ValueError(f"{run_id!r} is not the id of a run")
        return self._folder / f"{run_id}.log"
