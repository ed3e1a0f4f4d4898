"""Output of runs, as far as the broker has it: appended to by offset, with the beginning and the end of each kept."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from tiercel.core.kept_output import KeptOutput

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 64 * 1024
_MAX_OFFSET = 2**53
_RUN_ID = re.compile(r"[0-9a-z]{1,32}-[0-9]{1,9}")


class RunLogs:
    """Keeps the output of runs in a folder.

    Nodes send output again after a reconnection; what is there already is not written twice. Of each run the first and
    the last 8 MiB are kept, so a gap is taken behind the first alone.

    Args:
        folder: Where the files are; made when missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._grown = asyncio.Condition()

    def size(self, run_id: str) -> int:
        """Bytes of the run's output up to the last that is here."""
        output = self._output(run_id)
        return output.size if output is not None else 0

    async def append(self, run_id: str, offset: int, data: bytes) -> None:
        """Take in ``data``, which begins ``offset`` bytes into the run's output; what is not an id names no run."""
        output = self._output(run_id)
        if output is None:
            return
        have = output.size
        fresh = data[max(0, have - offset) :]
        if not fresh or offset > _MAX_OFFSET or (offset > have and not output.head_is_full):
            return
        output.write_at(max(offset, have), fresh)
        async with self._grown:
            self._grown.notify_all()

    def read(self, run_id: str, offset: int) -> tuple[int, bytes]:
        """Up to 64 KiB of the run's output from ``offset`` on, or from where what is kept goes on behind it.

        Returns:
            Where they begin, and the bytes; none at the end.
        """
        output = self._output(run_id)
        return output.read(offset, CHUNK_BYTES) if output is not None else (offset, b"")

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
