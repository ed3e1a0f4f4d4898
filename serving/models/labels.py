"""What the classes of a model are called: ``labels.txt``, a label a line, beside the version or beside all versions."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tiercel.core.errors import ArtefactRefusedError

MAX_BYTES = 4 * 1024**2
"""Largest file, in bytes."""
FILE_NAME = "labels.txt"


def read_labels(model: Path) -> tuple[str, ...]:
    """The labels of a version; none when it has no file. Blocks.

    Args:
        model: Its ONNX file, ``MODEL/VERSION/model.onnx``; ``VERSION/labels.txt`` goes before ``MODEL/labels.txt``.

    Raises:
        ArtefactRefusedError: The file is no plain file of at most :data:`MAX_BYTES` bytes of UTF-8.
    """
    for folder in (model.parent, model.parent.parent):
        data = _read(folder / FILE_NAME)
        if data is not None:
            try:
                return tuple(line.strip() for line in data.decode().splitlines())
            except UnicodeDecodeError as error:
                raise ArtefactRefusedError(f"{FILE_NAME} is not UTF-8: {error}") from error
    return ()


def _read(path: Path) -> bytes | None:
    """The content of a file, or None when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArtefactRefusedError(f"{path.name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtefactRefusedError(f"{path.name} must be a plain file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ArtefactRefusedError(f"{path.name} is over {MAX_BYTES} bytes")
    return data
