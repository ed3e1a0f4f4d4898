"""Private folders in the model repository: on its file system, out of every load's sight, and gone with the server."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from pathlib import Path

_FOLDER = ".uploads"
_numbers = itertools.count()


def new_stage(root: Path) -> Path:
    """A new private folder in a repository. Blocks.

    Raises:
        OSError: The repository cannot be written to.
    """
    folder = root / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    stage = folder / f"{os.getpid()}-{next(_numbers)}"
    shutil.rmtree(stage, ignore_errors=True)  # of a process that had this number before
    stage.mkdir(mode=0o700)
    return stage


def clean_up(root: Path) -> None:
    """Remove what servers that were killed left half written. Blocks."""
    with contextlib.suppress(FileNotFoundError):
        for stage in (root / _FOLDER).iterdir():
            pid = stage.name.partition("-")[0]
            if not (pid.isdigit() and pid != str(os.getpid()) and Path(f"/proc/{pid}").exists()):
                shutil.rmtree(stage, ignore_errors=True)
