"""Folders of environments on the disk: how large they are, and how they are closed and removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

_BLOCK_BYTES: Final = 512


def disk_bytes(folder: Path) -> int:
    """What a folder has on the disk; what vanishes meanwhile does not count."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(path, name)).st_blocks * _BLOCK_BYTES  # noqa: PTH118 - many
            except FileNotFoundError:
                continue
    return size


def make_read_only(folder: Path) -> None:
    """Let anybody who gets there read a folder and nobody write into it, as far as modes of files go.

    The user of a container is another one than the agent's, whose umask may keep others out.
    """
    for path, _, names in os.walk(folder, topdown=False):
        for name in names:
            file = Path(path, name)
            if not file.is_symlink():
                mode = file.stat().st_mode
                file.chmod((mode | (0o555 if mode & 0o100 else 0o444)) & ~0o222)
        Path(path).chmod(0o555)


def remove(folder: Path) -> None:
    """Remove a folder, also one that was made read-only; nothing there is fine.

    Raises:
        OSError: It cannot be removed.
    """
    doomed = folder.with_name(f".{folder.name}.doomed")
    for each in (doomed, folder):
        if each.is_dir():
            if each is folder:
                folder.rename(doomed)  # at once: half of an environment must not be taken for one
            for path, _, _ in os.walk(doomed):
                Path(path).chmod(0o700)
            shutil.rmtree(doomed)
