"""``MODEL/VERSION/rolled-back.json``: a version that was tried and rolled back does not come back by itself.

The mark outlives the process, so that neither a restart nor a delivery that is asked for again brings a bad version
up. Whoever loads it by its number takes the mark away. All functions block, for as long as a small file takes.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

FILE = "rolled-back.json"
_MAX_BYTES = 64 * 1024

_logger = logging.getLogger(__name__)


def mark(folder: Path, reason: str) -> None:
    """Note that the version in ``folder`` was rolled back; a repository that cannot be written gets no mark."""
    try:
        (folder / FILE).write_text(json.dumps({"reason": reason}) + "\n")
    except OSError as error:
        _logger.warning("%s cannot be marked as rolled back, so a restart loads it: %s", folder, error.strerror)


def unmark(folder: Path) -> None:
    """The version may come back."""
    try:
        (folder / FILE).unlink(missing_ok=True)
    except OSError as error:
        _logger.warning("%s stays marked as rolled back: %s", folder, error.strerror)


def why_rolled_back(folder: Path) -> str | None:
    """Why the version in ``folder`` was rolled back, or None where it was not."""
    try:
        with (folder / FILE).open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return "its mark cannot be read"
    return str(content.get("reason", "")) if isinstance(content, dict) else "its mark cannot be read"
