"""Collects the files that a run leaves behind, out of a folder that somebody hostile may have prepared.

No link is followed, and only regular files are taken. What is looked at, what is taken and its size are bounded; what
is left out is told, with the reason.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tiercel.core.path_patterns import MAX_PATH_PARTS, PathPatterns, path_problem
from tiercel.trainer_agent.disk.files import UntrustedFileError, copy_untrusted, open_folder

_MAX_LEFT_OUT: Final = 1_000
_SHOWN_CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """What is taken of a run."""

    files: int = 1_000  # files at most
    file_bytes: int = 256 * 1024**2  # what each may have
    total_bytes: int = 1024**3  # what they may have together
    entries: int = 100_000  # files and folders that are looked at, at most
    reserve_bytes: int = 512 * 1024**2  # what the disk has to have left while copies are on their way


@dataclass(frozen=True, slots=True)
class CollectedFile:
    """A file that was taken."""

    path: str  # where the run left it, relative to its working directory
    copy: Path  # a copy that no run can change
    size_bytes: int  # its size
    sha256: str  # of its content, hexadecimal


@dataclass(slots=True)
class Collection:
    """What a run left behind."""

    files: list[CollectedFile] = field(default_factory=list)  # what was taken
    # What was not, by path, with the reason in plain words; the first thousand.
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, path: str, reason: str) -> None:
        """Note what is not taken."""
        if len(self.left_out) < _MAX_LEFT_OUT:
            self.left_out[shown_path(path)] = reason


def collect(
    job_folder: Path, working_folder: str, patterns: PathPatterns, target: Path, limits: OutputLimits
) -> Collection:
    """Copy the files that match to where no run can change them; blocks while the disk works.

    Args:
        job_folder: The folder of a job whose run is over.
        working_folder: The run's working directory, relative to that.
        patterns: What is wanted of it.
        target: An empty folder.
        limits: How much is taken.

    Raises:
        OSError: The folder cannot be read.
    """
    walk = _Walk(patterns, target, limits)
    with contextlib.ExitStack() as folders:
        folder = folders.enter_context(open_folder(job_folder))
        for name in working_folder.split("/"):
            folder = folders.enter_context(open_folder(name, folder))
        walk.look_into(folder, "")
    return walk.found


class _Walk:
    def __init__(self, patterns: PathPatterns, target: Path, limits: OutputLimits) -> None:
        self.found = Collection()
        self._patterns = patterns
        self._target = target
        self._limits = limits
        self._entries_left = limits.entries
        self._bytes_left = limits.total_bytes
        disk = os.statvfs(target)
        self._room_left = disk.f_bavail * disk.f_frsize - limits.reserve_bytes

    def look_into(self, folder: int, path: str) -> None:
        """Take what matches in a folder, the first by name first."""
        for name in self._names(folder, path):
            below = f"{path}/{name}" if path else name
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    self._enter(name, folder, below)
                elif self._patterns.matches(below):
                    self._take(name, folder, below, status)
            except (OSError, UntrustedFileError) as error:
                self.found.leave_out(below, str(error))

    def _names(self, folder: int, path: str) -> list[str]:
        """The names in a folder, as far as there may be something and may still be looked at."""
        with os.scandir(folder) as entries:
            names = heapq.nsmallest(self._entries_left + 1, (entry.name for entry in entries))
        if len(names) > self._entries_left:
            reason = f"more than {self._limits.entries} files and folders are not looked at; leave fewer behind"
            self.found.leave_out(f"{path or '.'}/...", reason)
            names.pop()
        self._entries_left -= len(names)
        return names

    def _enter(self, name: str, inside: int, path: str) -> None:
        if not self._patterns.may_match_below(path):
            return
        if path.count("/") >= MAX_PATH_PARTS - 1:
            self.found.leave_out(path, f"folders are looked into no deeper than {MAX_PATH_PARTS} levels")
            return
        with open_folder(name, inside) as folder:
            self.look_into(folder, path)

    def _take(self, name: str, folder: int, path: str, status: os.stat_result) -> None:
        if reason := self._reason_against(path, status):
            self.found.leave_out(path, reason)
            return
        copy = self._target / str(len(self.found.files))
        limit = min(self._limits.file_bytes, self._bytes_left, self._room_left)
        try:
            digest = copy_untrusted(name, inside=folder, target=copy, limit_bytes=limit, durable=False)
        except BaseException:
            copy.unlink(missing_ok=True)
            raise
        size = copy.stat().st_size
        self._bytes_left -= size
        self._room_left -= size
        self.found.files.append(CollectedFile(path, copy, size, digest))

    def _reason_against(self, path: str, status: os.stat_result) -> str:
        if not stat.S_ISREG(status.st_mode):
            return "it is a link" if stat.S_ISLNK(status.st_mode) else "it is not a regular file"
        if problem := path_problem(path):
            return f"its path {problem}"
        if len(self.found.files) >= self._limits.files:
            return f"more than {self._limits.files} files of a run are not kept; pack them into one"
        if status.st_size > self._limits.file_bytes:
            return f"it has {status.st_size} bytes, and a file may have {self._limits.file_bytes}"
        if status.st_size > self._bytes_left:
            return f"the files of a run may have {self._limits.total_bytes} bytes together"
        if status.st_size > self._room_left:
            return "the disk of its node is full"
        return ""


def shown_path(path: str) -> str:
    """A path as it may be printed, shortened."""
    printable = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in path)
    return printable if len(printable) <= _SHOWN_CHARACTERS else f"{printable[:_SHOWN_CHARACTERS]}…"
