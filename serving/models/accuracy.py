"""How accurate a version is: ``MODEL/VERSION/accuracy.json``, ``{"accuracy": 0.97}``; deliveries of jobs bring it.

Of one that has cheap variants, ``{"accuracy": 0.97, "int8": 0.965, "fp16": 0.97}``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeGuard

from tiercel.core.accuracy import ACCURACY_FILE
from tiercel.core.errors import ArtefactRefusedError

_MAX_BYTES = 64 * 1024


def accuracy_of(version: Path, name: str = "accuracy") -> float | None:
    """The measured accuracy of the version in a folder, a fraction; None when it has none that makes sense. Blocks.

    Args:
        version: The folder.
        name: Under which it stands there: the kind of one of its cheap variants for that one's.
    """
    try:
        accuracy = read_object(version / ACCURACY_FILE).get(name)
    except (FileNotFoundError, ArtefactRefusedError):
        return None
    return float(accuracy) if is_fraction(accuracy) else None


def is_fraction(value: object) -> TypeGuard[float]:
    """Whether a value may be an accuracy: a number above 0 and at most 1."""
    return isinstance(value, int | float) and type(value) is not bool and 0.0 < value <= 1.0


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a small file. Blocks.

    Raises:
        FileNotFoundError: There is none.
        ArtefactRefusedError: It holds something else, or cannot be read; the message names the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(path.name) from error
    except OSError as error:
        raise ArtefactRefusedError(f"{path.name} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ArtefactRefusedError(f"{path.name} has more than {_MAX_BYTES} bytes")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtefactRefusedError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ArtefactRefusedError(f"{path.name} must hold a JSON object")
    return content
