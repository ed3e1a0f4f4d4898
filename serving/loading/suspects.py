"""``MODEL/VERSION/ended-the-server.json``: a version that ran whenever the server was killed is not loaded by itself.

One death proves nothing: whatever is asked much is likely to run at any moment. A version that ran at two within an
hour is held back; of several the newest only, since the others were there before and did no harm. Whoever loads it by
its number has it all the same. All functions block, for as long as a small file takes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from tiercel.core.errors import TiercelError
from tiercel.serving.models import repository

FILE = "ended-the-server.json"
_MAX_BYTES = 4096
_DEATHS = 2
_WINDOW_SECONDS = 3600.0

_logger = logging.getLogger(__name__)


def accuse(root: Path, names: Iterable[str], now: float) -> None:
    """The server was killed while these versions ran.

    Args:
        root: The repository.
        names: ``MODEL/VERSION``; those that are not on disk any more are forgotten.
        now: Seconds since the epoch; another process reads it.
    """
    suspects: list[tuple[float, Path, list[float]]] = []
    for name in dict.fromkeys(names):  # its cheap variants run under the version's name as well
        path = _artefact(root, name)
        if path is None:
            continue
        times = [*_times(path.parent, now), now]
        _write(path.parent, times, held_back=False)
        if len(times) >= _DEATHS:
            suspects.append((path.stat().st_mtime, path.parent, times))
        _logger.error("The server was killed while %s ran (%d times lately)", name, len(times))
    if suspects:
        _, folder, times = max(suspects)
        _write(folder, times, held_back=True)


def why_held_back(folder: Path) -> str | None:
    """Why the version in ``folder`` is not loaded by itself; None where it may be."""
    content = _read(folder)
    if not content.get("held_back"):
        return None
    return "the server was killed more than once while it ran; load it by its number to have it all the same"


def forgive(folder: Path) -> None:
    """The version may come back."""
    try:
        (folder / FILE).unlink(missing_ok=True)
    except OSError as error:
        _logger.warning("%s stays suspected: %s", folder, error.strerror)


def _artefact(root: Path, name: str) -> Path | None:
    model, _, version = name.partition("/")
    try:
        if not repository.is_version(version):
            return None
        path = repository.artefact(root, repository.checked_name(model), int(version)).path
    except TiercelError:
        return None
    return path if path.exists() else None


def _times(folder: Path, now: float) -> list[float]:
    times = _read(folder).get("times")
    if not isinstance(times, list):
        return []
    return [each for each in times if isinstance(each, float) and 0 <= now - each <= _WINDOW_SECONDS][-_DEATHS:]


def _read(folder: Path) -> dict[str, object]:
    try:
        with (folder / FILE).open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(folder: Path, times: list[float], *, held_back: bool) -> None:
    try:
        (folder / FILE).write_text(json.dumps({"times": times, "held_back": held_back}) + "\n")
    except OSError as error:
        _logger.warning("%s cannot be marked as suspected: %s", folder, error.strerror)
