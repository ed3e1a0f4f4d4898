"""What has come of files that were broken off: it stays for a while, and who fetches them again goes on where it was.

That an agent or its broker is restarted does not end it: neither may know at once that the files are still wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.errors import RefusedError

_PREFIX: Final = "copy-of-"
_LEFT_SECONDS: Final = 600.0
_MAX_LEFT: Final = 16


class Parts:
    """Owns the folders into which files are fetched, each by a name.

    Args:
        folder: Where they are, beside what others put there.
        most_bytes: What all that nobody fetches may have together; of more the newest stay.
        now: Seconds of a clock that never goes back.
    """

    def __init__(self, folder: Path, most_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._now = now
        self._in_use: Counter[Path] = Counter()
        self._left: dict[Path, float] = {}  # since when nobody fetches them

    @contextlib.asynccontextmanager
    async def fetching(self, name: str) -> AsyncIterator[Path]:
        """Where to fetch files to; gone afterwards, with what is still in it, unless they were broken off.

        Args:
            name: Of the files; nobody else fetches any by it meanwhile.
        """
        place = self.folder / f"{_PREFIX}{name}"
        self._in_use[place] += 1
        stays = False
        try:
            yield place
        except (RefusedError, asyncio.CancelledError):  # as by a broker that begins, and does not know yet
            stays = True
            raise
        finally:
            self._in_use[place] -= 1
            self._in_use += Counter()  # without those of nobody
            if stays:
                self._left[place] = self._now()
            else:
                await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def watch(self) -> None:
        """Let go of what nobody fetched again, for ever."""
        while True:
            await self.drop_left()
            await asyncio.sleep(_LEFT_SECONDS / 10)

    async def drop_left(self) -> None:
        """Remove what nobody has fetched for ten minutes; of the others the newest stay."""
        room_bytes, now = self._most_bytes, self._now()
        left: dict[Path, float] = {}
        for place, size_bytes in await asyncio.to_thread(self._find):
            if self._in_use[place]:
                continue
            since = self._left.get(place, now)
            room_bytes -= size_bytes
            if now - since < _LEFT_SECONDS and room_bytes >= 0 and len(left) < _MAX_LEFT:
                left[place] = since
            else:
                await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        self._left = left

    def _find(self) -> list[tuple[Path, int]]:
        """All there are, with their bytes; the newest first."""
        found = []
        for place in self.folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(FileNotFoundError):  # put in its place just now
                found.append((place.stat().st_mtime_ns, place, sum(path.stat().st_size for path in place.iterdir())))
        return [(place, size_bytes) for _, place, size_bytes in sorted(found, reverse=True)]


def remove_all_but_parts(folder: Path, names: Collection[str] = ()) -> None:
    """Remove what else is in a folder, but for some; blocks."""
    for place in list(folder.iterdir()) if folder.is_dir() else ():
        if not place.name.startswith(_PREFIX) and place.name not in names:
            shutil.rmtree(place, ignore_errors=True)
