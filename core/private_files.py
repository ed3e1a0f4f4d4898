"""Writes files that only their owner may read, in one step: whoever reads one sees the old or the new, whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place, with mode 0600 and for good.

    Raises:
        OSError: It cannot be written; what was there before is untouched.
    """
    temporary = path.with_name(f"{path.name}.new")
    # One that an earlier start left behind might be open to others: the mode counts only where a file is made.
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # what is done next may count on it
    finally:
        os.close(folder)
