"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that was not there before; nothing of it is left if the block fails."""
    with target.open("xb") as file:
        try:
            yield file
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def sync(file: BinaryIO) -> None:
    """Make what was written durable; blocks."""
    file.flush()
    os.fsync(file.fileno())
