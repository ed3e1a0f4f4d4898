"""The folder of a job: all that its runs are given, kept from one attempt to the next.

A run may write to it, so whatever lies in it when the next attempt is prepared may be a trap: nothing here follows a
link, and what the agent writes it writes into folders that it has just opened or made.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.projects import Entry, Kind
from tiercel.trainer_agent.disk.files import (
    UntrustedFileError,
    copy_new,
    copy_untrusted,
    open_folder,
    remove_anything,
    write_new,
)
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.errors import RunFailedError, TransferError

SOCKET: Final = "agent.sock"
TOKEN: Final = "token"  # noqa: S105 - a file's name
EXPORTS: Final = "exports"
PROGRAM: Final = "program"
WORK: Final = "work"

CHECKPOINTS: Final = "checkpoints"
IMPORTS: Final = "imports.json"
"""Where a run's trainer writes what was imported by then."""

_WRITABLE: Final = (EXPORTS, CHECKPOINTS, WORK)
# Of a checkpoint that goes to another node.
_MAX_FILES: Final = 16


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """The script of a job."""

    name: str  # file name
    content: bytes  # its text


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a checkpoint, out of the reach of the run that wrote it."""

    path: Path  # the copy
    size_bytes: int  # its size
    sha256: str  # of its content, hexadecimal


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of one job."""

    path: Path  # where it is

    def prepare(self, *, token: str, script: ScriptFile | None, owner: tuple[int, int] | None) -> None:
        """Make the folder ready for a run: fresh token and program, checkpoints as they are.

        Raises:
            RunFailedError: The folder cannot be prepared.
        """
        if owner == (os.getuid(), os.getgid()):
            owner = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with open_folder(self.path) as folder:
                # A run under another user may look in but not replace what lies at the top.
                os.fchmod(folder, 0o700 if owner is None else 0o755)
                for name in _WRITABLE:
                    _make_writable(name, folder, owner)
                remove_anything(TOKEN, folder)
                write_new(TOKEN, f"{token}\n".encode(), inside=folder, mode=0o600, owner=owner)
                if owner is not None:  # who cannot make a file at the top
                    with contextlib.suppress(FileExistsError):  # an earlier run's is as good
                        write_new(IMPORTS, b"", inside=folder, mode=0o600, owner=owner)
                _write_program(script, folder)
        except OSError as error:
            raise RunFailedError(f"The folder of the job cannot be prepared: {error}.") from error

    def put_project(
        self,
        entries: Sequence[tuple[str, Entry]],
        content: Callable[[Entry], Path],
        owner: tuple[int, int] | None,
    ) -> None:
        """Put a copy of a project of its own in place of the program; blocks while the disk works.

        The run may change it, and the next run begins with a fresh one.

        Args:
            entries: What is in it by path, folders before what lies in them; paths and links stay inside.
            content: Where the content of a file lies.
            owner: User and group id that the run has, or None if they are the agent's.

        Raises:
            RunFailedError: It cannot be put there.
        """
        if owner == (os.getuid(), os.getgid()):
            owner = None
        try:
            with open_folder(self.path) as folder:
                remove_anything(PROGRAM, folder)
                os.mkdir(PROGRAM, 0o700, dir_fd=folder)  # nobody else looks in while it is filled
            program = self.path / PROGRAM
            for path, entry in entries:
                _put(program / path, entry, content)
            if owner is not None:
                for path, _ in entries:
                    os.chown(program / path, *owner, follow_symlinks=False)
                os.chown(program, *owner)
        except OSError as error:
            raise RunFailedError(f"The project cannot be put into the folder of the job: {error}.") from error

    def remove_socket(self) -> None:
        """Make room for the agent's socket, where an earlier life of the agent has left one."""
        with open_folder(self.path) as folder:
            remove_anything(SOCKET, folder)

    def give_socket(self, owner: tuple[int, int] | None) -> None:
        """Let the run connect to the agent's socket."""
        with open_folder(self.path) as folder:
            if owner is not None and owner != (os.getuid(), os.getgid()):
                os.chown(SOCKET, *owner, dir_fd=folder, follow_symlinks=False)

    def remove_export(self, delivery_id: str) -> None:
        """Remove the files of a delivery that is over."""
        try:
            with open_folder(self.path) as folder, open_folder(EXPORTS, folder) as exports:
                remove_anything(delivery_id, exports)
        except FileNotFoundError:
            return

    def has_checkpoint(self) -> bool:
        """Whether an earlier run left something to go on from; blocks while the disk works.

        Raises:
            OSError: The folder cannot be read.
        """
        with (
            open_folder(self.path) as folder,
            open_folder(CHECKPOINTS, folder) as checkpoints,
            os.scandir(checkpoints) as entries,
        ):
            return any(is_plain(entry.name) and entry.is_file(follow_symlinks=False) for entry in entries)

    def checkpoint_stamp(self) -> tuple[int, ...]:
        """Tells the checkpoints that are there from those of another moment; empty where there are none.

        Raises:
            OSError: The folder cannot be read.
        """
        with open_folder(self.path) as folder, open_folder(CHECKPOINTS, folder) as checkpoints:
            names = sorted(entry.name for entry in os.scandir(checkpoints) if is_plain(entry.name))[:_MAX_FILES]
            stamp: list[int] = []
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # a newer one just takes its place
                    found = os.stat(name, dir_fd=checkpoints, follow_symlinks=False)
                    stamp += (found.st_mtime_ns, found.st_ino, found.st_size)
            return tuple(stamp)

    def copy_checkpoint(self, target: Path, limit_bytes: int) -> list[CopiedFile]:
        """Copy the newest checkpoints to where no run can change them; blocks while the disk works.

        Only regular files with plain names that lie in the folder itself are taken.

        Args:
            target: An empty folder.
            limit_bytes: What all of them may have together.

        Raises:
            TransferError: There is none, or they are too large; says what to do.
        """
        copies: list[CopiedFile] = []
        try:
            with open_folder(self.path) as folder, open_folder(CHECKPOINTS, folder) as checkpoints:
                names = [entry.name for entry in os.scandir(checkpoints) if is_plain(entry.name)]
                for name in sorted(names)[:_MAX_FILES]:
                    left = limit_bytes - sum(copy.size_bytes for copy in copies)
                    if not stat.S_ISREG(os.stat(name, dir_fd=checkpoints, follow_symlinks=False).st_mode):
                        continue
                    digest = copy_untrusted(name, inside=checkpoints, target=target / name, limit_bytes=left)
                    copies.append(CopiedFile(target / name, (target / name).stat().st_size, digest))
        except UntrustedFileError as error:
            message = f"its checkpoints have more than the {limit_bytes} bytes that can be transferred ({error})"
            raise TransferError(message) from error
        except OSError as error:
            raise TransferError(f"its checkpoint cannot be read ({error})") from error
        if not copies:
            raise TransferError("it has saved no checkpoint")
        return copies

    def put_checkpoint(self, files: Sequence[Path], owner: tuple[int, int] | None) -> None:
        """Put checkpoints that came from another node in place of whatever is there; blocks while the disk works.

        Raises:
            RunFailedError: They cannot be put there.
        """
        if owner == (os.getuid(), os.getgid()):
            owner = None
        try:
            with open_folder(self.path) as folder:
                remove_anything(CHECKPOINTS, folder)
                _make_writable(CHECKPOINTS, folder, owner)
                with open_folder(CHECKPOINTS, folder) as checkpoints:
                    for file in files:
                        copy_new(file, file.name, inside=checkpoints, mode=0o600, owner=owner)
                    os.fsync(checkpoints)
        except OSError as error:
            raise RunFailedError(f"The checkpoint cannot be put into the folder of the job: {error}.") from error


def _make_writable(name: str, folder: int, owner: tuple[int, int] | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            remove_anything(name, folder)  # a link or a file: an earlier run's doing
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
    with open_folder(name, folder) as inner:
        _own(inner, owner)


def _own(folder: int, owner: tuple[int, int] | None) -> None:
    os.fchmod(folder, 0o700)
    if owner is not None:
        os.fchown(folder, *owner)


def _write_program(script: ScriptFile | None, folder: int) -> None:
    remove_anything(PROGRAM, folder)
    os.mkdir(PROGRAM, 0o755, dir_fd=folder)
    with open_folder(PROGRAM, folder) as inner:
        os.fchmod(inner, 0o755)
        if script is not None:
            write_new(script.name, script.content, inside=inner, mode=0o644, owner=None)


def _put(path: Path, entry: Entry, content: Callable[[Entry], Path]) -> None:
    """Make one entry of a project; nobody else can reach the folder yet."""
    if entry.kind is Kind.FOLDER:
        path.mkdir(mode=0o755)
    elif entry.kind is Kind.LINK:
        path.symlink_to(entry.content)
    else:
        # A copy, never another name of the same file: what a run writes into it must not reach other jobs.
        shutil.copyfile(content(entry), path)
        path.chmod(0o755 if entry.kind is Kind.PROGRAM else 0o644)
