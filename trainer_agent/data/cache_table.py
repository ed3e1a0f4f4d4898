"""What the node's cache of data has: bounded in bytes, the least recently used goes first, and nothing that a run uses.

An entry is complete from the moment it has its name. All of this blocks while the disk works, and may be called from
several threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.data.transfer import FetchError
from tiercel.trainer_agent.disk.files import sync_folder, write_atomically

_log = logging.getLogger(__name__)

MAX_ENTRIES: Final = 10_000
_RECORD: Final = "record.json"
_CONTENT: Final = "content"


@dataclass(frozen=True, slots=True)
class Entry:
    """A data set in the cache."""

    url: str  # where it came from
    version: str  # what its server called it, or empty
    sha256: str  # of it
    size: int  # in bytes
    files: int  # how many
    name: str  # of the file; empty for a folder
    state: str = ""  # changes when somebody changes it here
    place: Path = Path()  # its folder
    fetched_at: float = 0.0  # when, by the monotonic clock; 0 in an earlier life of the agent

    @property
    def path(self) -> Path:
        """The file, or the folder."""
        content = self.place / _CONTENT
        return content / self.name if self.name else content


class CacheTable:
    """The cache's entries.

    Args:
        folder: Where they are; the agent's own.
        quota_bytes: What they may have together, with what is on its way.
        reserve_bytes: What the disk has to have left.
    """

    def __init__(self, folder: Path, quota_bytes: int, reserve_bytes: int) -> None:
        self.quota_bytes = quota_bytes
        self._entries_folder, self._arriving_folder = folder / "entries", folder / "arriving"
        self._reserve_bytes = reserve_bytes
        self._lock = threading.Lock()
        self._entries: dict[Path, Entry] = {}  # the least recently used first
        self._stale: set[Path] = set()
        self._arriving: dict[Path, int] = {}
        self._held: dict[str, set[Path]] = {}

    def load(self) -> None:
        """See what an earlier life of the agent left, and remove what had not arrived.

        Raises:
            OSError: The folder cannot be used.
        """
        self._entries_folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._arriving_folder, ignore_errors=True)
        self._arriving_folder.mkdir(exist_ok=True)
        found: list[tuple[float, Entry]] = []
        for place in self._entries_folder.iterdir():
            try:
                record = json.loads((place / _RECORD).read_text())
                entry = replace(Entry(**record), place=place)
                found.append(((place / _RECORD).stat().st_mtime, entry))
            except (OSError, ValueError, TypeError):
                shutil.rmtree(place, ignore_errors=True)
        self._entries = {entry.place: entry for _, entry in sorted(found, key=lambda each: each[0])}

    def take(self, run_id: str, is_wanted: Callable[[Entry], bool]) -> Entry | None:
        """An entry, held for a run from now on; None where there is none that is as it arrived."""
        with self._lock:
            for place in reversed(self._entries):
                entry = self._entries[place]
                if place in self._stale or not is_wanted(entry):
                    continue
                if _state_of(place / _CONTENT) == entry.state:
                    self._use(run_id, entry)
                    return entry
                _log.warning("data of %s was changed in the cache, and is fetched again", entry.url.partition("?")[0])
                self._stale.add(place)
        return None

    def begin(self) -> tuple[Path, Path]:
        """A folder for something to arrive in, and the folder in there that its files belong in."""
        place = self._arriving_folder / secrets.token_hex(8)
        (place / _CONTENT).mkdir(parents=True)
        with self._lock:
            self._arriving[place] = 0
        return place, place / _CONTENT

    def grow(self, place: Path, size: int) -> None:
        """What arrives there has so many bytes by now; makes room for it.

        Raises:
            FetchError: There is no room.
        """
        with self._lock:
            self._arriving[place] = size
            while self._used() > self.quota_bytes or len(self._entries) >= MAX_ENTRIES:
                if not self._evict_one():
                    raise FetchError(
                        f"the node's cache is full: runs use all that it may have ({self.quota_bytes} bytes)",
                        again=True,
                    )
            while self._free_bytes() < self._reserve_bytes:
                if not self._evict_one():
                    raise FetchError(f"the disk of its node has {self._free_bytes()} bytes left", again=True)

    def finish(self, run_id: str, place: Path, entry: Entry) -> Entry:
        """What arrived there is complete: from now on it is an entry, held for a run.

        Raises:
            OSError: It cannot be made one.
        """
        content = place / _CONTENT
        entry = replace(entry, state=_state_of(content))
        record = asdict(entry)
        del record["place"], record["fetched_at"]
        write_atomically(place / _RECORD, json.dumps(record).encode())
        key = hashlib.sha256(f"{entry.url}\0{entry.version}".encode()).hexdigest()[:32]
        with self._lock:
            entry = replace(entry, place=self._entries_folder / f"{key}-{place.name}", fetched_at=time.monotonic())
            place.rename(entry.place)
            sync_folder(self._entries_folder)
            del self._arriving[place]
            for older in self._entries.values():
                if older.url == entry.url and older.version == entry.version:
                    self._stale.add(older.place)
            self._entries[entry.place] = entry
            self._use(run_id, entry)
        return entry

    def abandon(self, place: Path) -> None:
        """What arrived there is not wanted."""
        with self._lock:
            self._arriving.pop(place, None)
        shutil.rmtree(place, ignore_errors=True)

    def hold(self, run_id: str, url: str) -> None:
        """A run that an earlier life of the agent started may use what came from there."""
        with self._lock:
            self._held.setdefault(run_id, set()).update(
                entry.place for entry in self._entries.values() if entry.url == url
            )

    def release(self, run_id: str) -> None:
        """A run has ended."""
        with self._lock:
            self._held.pop(run_id, None)

    def make_room(self) -> None:
        """Remove all that no run uses."""
        with self._lock:
            while self._evict_one():
                pass

    def _use(self, run_id: str, entry: Entry) -> None:
        self._held.setdefault(run_id, set()).add(entry.place)
        self._entries[entry.place] = self._entries.pop(entry.place)
        with contextlib.suppress(OSError):
            os.utime(entry.place / _RECORD)

    def _used(self) -> int:
        return sum(entry.size for entry in self._entries.values()) + sum(self._arriving.values())

    def _free_bytes(self) -> int:
        status = os.statvfs(self._arriving_folder)
        return status.f_bavail * status.f_frsize

    def _evict_one(self) -> bool:
        """Remove the entry that goes first; whether there was one."""
        held = set().union(*self._held.values())
        free = [place for place in self._entries if place not in held]
        place = next((each for each in free if each in self._stale), free[0] if free else None)
        if place is None:
            return False
        gone = self._arriving_folder / place.name  # first of all out of sight
        with contextlib.suppress(FileNotFoundError):
            place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        del self._entries[place]
        self._stale.discard(place)
        return True


def _state_of(content: Path) -> str:
    """Changes when any of the files does; cheap enough to be looked at each time."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(content):
        folders.sort()
        for name in sorted(files):
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - as the walk has it
            inside = os.path.relpath(folder, content)
            told = f"{inside}\0{name}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_mode}\n"
            digest.update(told.encode(errors="surrogateescape"))
    return digest.hexdigest()
