"""The broker's state directory: tokens, jobs and their scripts are in it, so that nobody else may look into it."""

from __future__ import annotations

import os
import pwd
import stat
from typing import TYPE_CHECKING

from tiercel.core.errors import InvalidSpecError, wrong_field

if TYPE_CHECKING:
    from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# Folders in it that are the broker's own.
_FOLDERS = ("logs", "checkpoints", "projects", "files")


def prepare_state_dir(path: Path) -> None:
    """Make the state directory if it is missing, and close it and the files in it to everybody else, as often as asked.

    Raises:
        InvalidSpecError: It cannot be made or used, or belongs to somebody else.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = path.stat()
        if found.st_uid != os.geteuid():
            raise refuse_state_dir(path, f"it belongs to {_user(found.st_uid)}")
        _close(path)
        for entry in path.iterdir():
            if entry.name in _FOLDERS or entry.is_file():
                _close(entry)
    except OSError as error:
        # pathlib says of a file in the folder's place that it exists.
        cause = "it is not a folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise refuse_state_dir(path, cause or str(error)) from error


def refuse_state_dir(path: Path, cause: str) -> InvalidSpecError:
    """What is said of a folder that is of no use, with the cause."""
    return wrong_field(
        "state_dir", f"{path} cannot be used ({cause}); choose a folder of your own that you may write to"
    )


def _close(path: Path) -> None:
    found = path.lstat()
    # A link's own mode means nothing, and what it leads to may be meant for others.
    if found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
