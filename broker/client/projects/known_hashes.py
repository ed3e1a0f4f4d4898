"""Remembers the hashes of a project's files, so that to submit it again reads only what has changed.

A file is taken for what it was while its device, inode, size and both times of change are the same. There is one file
for each project in the user's cache folder, replaced as a whole. What is damaged or cannot be read counts as empty, and
what cannot be written is left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tiercel.core.blobs import is_sha256
from tiercel.core.projects import MAX_ENTRIES

RESTED_SECONDS: Final = 60.0
"""What was changed less than this ago may change again within one tick of a clock, or through a mapped page, unseen."""
MAX_PROJECTS: Final = 32
MAX_AGE_SECONDS: Final = 30 * 86400.0
_MAX_BYTES: Final = MAX_ENTRIES * 256

_Key = tuple[int, int, int, int, int]


class KnownHashes:
    """Hashes of files, as far as they are known.

    Args:
        project: The project's folder.
        now: Seconds since the epoch.
    """

    def __init__(self, project: Path, now: Callable[[], float] = time.time) -> None:
        folder = cache_folder()
        name = hashlib.sha256(os.fsencode(project)).hexdigest()[:32]
        self._file = None if folder is None else folder / f"{name}"
        self._now = now
        self._known = {} if self._file is None else _read(self._file)
        self._used: dict[_Key, str] = {}

    def hash_of(self, path: Path) -> tuple[str, int]:
        """SHA-256 and size of a file, which is read only where it is not known.

        Raises:
            OSError: It cannot be read.
        """
        status = path.lstat()
        key = _key(status)
        known = self._known.get(key)
        if known is not None and stat.S_ISREG(status.st_mode):
            self._used[key] = known
            return known, status.st_size
        started = self._now()
        with path.open("rb") as file:
            before = _key(os.fstat(file.fileno()))
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
            after = _key(os.fstat(file.fileno()))
        if before == after == key and max(after[3:]) / 1e9 < started - RESTED_SECONDS:
            self._used[after] = sha256
        return sha256, size

    def save(self) -> None:
        """Remember what was seen, and nothing else of this project."""
        if self._file is None or not (self._used or self._known):
            return
        with contextlib.suppress(OSError):
            if self._used == self._known:
                os.utime(self._file)
            else:
                _write(self._file, self._used)
            _prune(self._file.parent, self._now())

    def forget(self) -> None:
        """Know nothing any more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()


def cache_folder() -> Path | None:
    """Where hashes are kept for this user, or None where nobody can say."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # What is not absolute is to be ignored, says who defined the variable.
        return (Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache") / "tiercel" / "hashes"
    except RuntimeError:
        return None


def _key(status: os.stat_result) -> _Key:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(file: Path) -> dict[_Key, str]:
    try:
        with file.open("rb") as opened:
            digest, _, body = opened.read(_MAX_BYTES).partition(b"\n")
        if digest.decode() != hashlib.sha256(body).hexdigest():
            return {}
        lines = (line.split() for line in body.decode().splitlines())
        return {_numbers(*numbers): sha256 for sha256, *numbers in lines if is_sha256(sha256)}
    except (OSError, ValueError, TypeError):
        return {}


def _numbers(device: str, inode: str, size: str, modified: str, changed: str) -> _Key:
    return int(device), int(inode), int(size), int(modified), int(changed)


def _write(file: Path, known: dict[_Key, str]) -> None:
    body = "".join(f"{sha256} {' '.join(map(str, key))}\n" for key, sha256 in known.items()).encode()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=file.parent, suffix=".part")
    try:
        with open(descriptor, "wb") as opened:  # noqa: PTH123 - a descriptor
            opened.write(f"{hashlib.sha256(body).hexdigest()}\n".encode() + body)
        Path(part).replace(file)
    except OSError:
        Path(part).unlink(missing_ok=True)
        raise


def _prune(folder: Path, now: float) -> None:
    """Remove what was not used for long, and what is too much; what a process left that was killed, too."""
    files = sorted(((each.stat().st_mtime, each.path) for each in os.scandir(folder)), reverse=True)
    for place, (used, path) in enumerate(files):
        if place >= MAX_PROJECTS or used < now - MAX_AGE_SECONDS:
            Path(path).unlink(missing_ok=True)
