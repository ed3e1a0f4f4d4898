"""A file system of its own that is soon full."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testing.needs import need


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int, *options: str) -> Iterator[Path]:
    """A file system in memory, mounted at ``folder``; needs root, which CI has."""
    folder.mkdir()
    options = (f"size={size_bytes}", "mode=700", *options)
    mount = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    need(not mounted.returncode, f"to mount a file system: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily: a file that is still open keeps it alive until it is closed.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room there is; returns the file that has it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x")
    return filler
