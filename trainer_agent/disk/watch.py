"""Watches what the jobs of a node write to its disk, and has those ended that write too much.

A quota of the kernel would need privileges, and a file system that has them; this needs neither. It is late by a look,
which is what the reserve is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

MAX_ENTRIES: Final = 1_000_000
"""Files and folders of a job; more are not looked at, and end it."""

_BLOCK_BYTES: Final = 512  # what st_blocks counts, on every file system
_GROWTH_BYTES: Final = 1024**2
_FREE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 10.0
_SHARE_OF_TIME: Final = 0.05
_GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """What jobs may do to the disk."""

    job_bytes: int = 20 * _GIB  # what the folder of a job may have
    # What the file system has to have left; with less, the job that grows and has most is ended.
    reserve_bytes: int = _GIB // 2


@dataclass(frozen=True, slots=True)
class FolderUse:
    """What a folder has on the disk."""

    size_bytes: int  # in blocks that are really there, each file once
    problem: str = ""  # why not all of it could be looked at; empty if it could


@dataclass(frozen=True, slots=True)
class JobFolders:
    """Where a job writes."""

    folder: Path  # the job's folder
    scratch: Path  # the scratch folder of its run, be it there or not
    scratch_bytes: int = 0  # what that may have on the disk


@dataclass(frozen=True, slots=True)
class JobUse:
    """What a job has on the disk."""

    folder: FolderUse  # its folder
    scratch: FolderUse  # its scratch folder
    scratch_bytes: int = 0  # what that may have

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return self.folder.size_bytes + self.scratch.size_bytes


_NOTHING: Final = FolderUse(0)


def measure(folder: Path, max_entries: int = MAX_ENTRIES) -> FolderUse:
    """Look at a folder that somebody else writes to; follows no link, and blocks while the disk works."""
    size = entries = 0
    seen: set[tuple[int, int]] = set()  # files with several names
    folders = [os.fspath(folder)]
    try:
        while folders:
            for path, status in _entries(folders.pop()):
                entries += 1
                if entries > max_entries:
                    return FolderUse(size, f"has more than {max_entries} files")
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif status.st_nlink > 1:
                    if (status.st_dev, status.st_ino) in seen:
                        continue
                    seen.add((status.st_dev, status.st_ino))
                size += status.st_blocks * _BLOCK_BYTES
    except OSError as error:
        if error.errno not in {errno.ENAMETOOLONG, errno.EACCES}:
            raise
        return FolderUse(size, f"has a folder that cannot be looked into ({error.strerror})")
    return FolderUse(size)


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """What is in a folder; what goes away meanwhile is left out."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):
                yield entry.path, entry.stat(follow_symlinks=False)


def use_of(folders: JobFolders) -> JobUse:
    """Look at all that a job writes to; see :func:`measure`."""
    scratch = measure(folders.scratch) if folders.scratch_bytes else _NOTHING
    return JobUse(measure(folders.folder), scratch, folders.scratch_bytes)


def to_end(
    uses: Mapping[str, JobUse], before: Mapping[str, JobUse], free_bytes: int, limits: DiskLimits
) -> dict[str, str]:
    """The jobs that have to end, each with the reason in plain words.

    Args:
        uses: What the jobs have now, by id.
        before: What they had at the look before; a job that is new had nothing.
        free_bytes: What the file system has left.
        limits: What they may do.
    """
    reasons = {job_id: reason for job_id, use in uses.items() if (reason := _over(use, limits))}
    if free_bytes >= limits.reserve_bytes or reasons:
        return reasons
    nothing = JobUse(_NOTHING, _NOTHING)
    growing = {
        job_id: use.size_bytes
        for job_id, use in uses.items()
        if use.size_bytes - before.get(job_id, nothing).size_bytes >= _GROWTH_BYTES
    }
    if not growing:  # somebody else fills the disk
        return {}
    largest = max(growing, key=lambda job_id: (growing[job_id], job_id))
    return {
        largest: f"the disk of its node has {_size(free_bytes)} left, less than the {_size(limits.reserve_bytes)} "
        f"that have to stay free, and of the jobs that write to it this one has most ({_size(growing[largest])}): "
        "write less, or free some disk"
    }


def _over(use: JobUse, limits: DiskLimits) -> str:
    folder, scratch = use.folder, use.scratch
    if folder.size_bytes > limits.job_bytes:
        return (
            f"its folder has {_size(folder.size_bytes)} on the disk, and {_size(limits.job_bytes)} are allowed: "
            "write less, or have the node's operator raise --job-disk-bytes"
        )
    if scratch.size_bytes > use.scratch_bytes:
        return (
            f"its scratch folder has {_size(scratch.size_bytes)} on the disk, and {_size(use.scratch_bytes)} were "
            "asked for: write less, or ask for more (resources.scratch)"
        )
    for name, each in (("folder", folder), ("scratch folder", scratch)):
        if each.problem:
            return f"its {name} {each.problem}: what a job writes has to be seen"
    return ""


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.2f} GiB" if size_bytes >= _GIB // 10 else f"{size_bytes / 1024**2:.1f} MiB"


class DiskWatch:
    """Looks at the disk now and then.

    Args:
        place: A folder on the file system.
        limits: What jobs may do to it.
        folders: The folders of the jobs that run, by job.
        end: Ends the run of a job, with a reason; may not block.
        make_room: Removes what nobody needs when there is little room; blocks.
    """

    def __init__(
        self,
        place: Path,
        limits: DiskLimits,
        folders: Callable[[], Mapping[str, JobFolders]],
        end: Callable[[str, str], None],
        make_room: Callable[[], None],
    ) -> None:
        self._place = place
        self._limits = limits
        self._folders = folders
        self._end = end
        self._make_room = make_room
        self._uses: dict[str, JobUse] = {}
        self._next_look = 0.0

    async def run(self) -> None:
        """Watch until cancelled. Looks take a twentieth of a thread's time at most."""
        while True:
            try:
                await self._look_if_due()
            except OSError as error:
                _log.warning("the disk cannot be looked at: %s", error)
            await asyncio.sleep(_FREE_SECONDS)

    async def _look_if_due(self) -> None:
        is_low = self._free_bytes() < self._limits.reserve_bytes
        began = time.monotonic()
        if began < self._next_look and not (is_low and began >= self._next_look - _LOOK_SECONDS):
            return
        if is_low:
            await asyncio.to_thread(self._make_room)
        uses = {job_id: await asyncio.to_thread(use_of, each) for job_id, each in self._folders().items()}
        for job_id, reason in to_end(uses, self._uses, self._free_bytes(), self._limits).items():
            self._end(job_id, reason)
        self._uses = uses
        now = time.monotonic()
        self._next_look = now + max(_LOOK_SECONDS, (now - began) / _SHARE_OF_TIME)

    def _free_bytes(self) -> int:
        status = os.statvfs(self._place)
        return status.f_bavail * status.f_frsize
