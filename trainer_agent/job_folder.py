"""The folder of a job: all that its runs are given, kept from one attempt to the next.

A run may write to it, so whatever lies in it when the next attempt is prepared may be a trap: nothing here follows a
link, and what the agent writes it writes into folders that it has just opened or made.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.files import open_folder, remove_anything, write_new

SOCKET: Final = "agent.sock"
TOKEN: Final = "token"  # noqa: S105 - a file's name
EXPORTS: Final = "exports"
PROGRAM: Final = "program"

_WRITABLE: Final = (EXPORTS, "checkpoints", "work")


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """The script of a job.

    Attributes:
        name: File name.
        content: Its text.
    """

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of one job.

    Attributes:
        path: Where it is.
    """

    path: Path

    def prepare(self, *, token: str, script: ScriptFile | None, owner: tuple[int, int] | None) -> None:
        """Make the folder ready for a run: fresh token and program, checkpoints as they are.

        Args:
            token: The run's secret.
            script: The job's script, or None.
            owner: User and group id that the run has, or None if they are the agent's.

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
                remove_anything(SOCKET, folder)
                remove_anything(TOKEN, folder)
                write_new(TOKEN, f"{token}\n".encode(), inside=folder, mode=0o600, owner=owner)
                _write_program(script, folder)
        except OSError as error:
            raise RunFailedError(f"The folder of the job cannot be prepared: {error}.") from error

    def give_socket(self, owner: tuple[int, int] | None) -> None:
        """Let the run connect to the agent's socket.

        Args:
            owner: User and group id that the run has, or None if they are the agent's.
        """
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
