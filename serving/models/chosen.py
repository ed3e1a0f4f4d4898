"""Which version of a model answers where nobody names one: the newest, unless ``MODEL/live.json`` says another.

``{"version": 2}``: version 2, also when the server is started again; ``{"version": 0}``: none of them. With
``"fixed": true`` no other one may take its place, however it is loaded, until the file says so. Other keys are for
whoever wrote the file. All functions block, for as long as a small file takes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tiercel.core.errors import ArtefactRefusedError
from tiercel.core.model_files import LIVE_FILE
from tiercel.serving.models.accuracy import read_object
from tiercel.serving.models.repository import versions_on_disk

_logger = logging.getLogger(__name__)


def chosen_version(model: Path) -> int | None:
    """The version that is named in a model's folder, 0 for none; None where nobody has chosen."""
    return _version_in(_choice(model))


def why_other_stays(model: Path, version: int) -> str:
    """Why a version must not answer in place of what does, in plain words; empty where it may."""
    choice = _choice(model)
    chosen = _version_in(choice)
    if choice.get("fixed") is not True or chosen is None or chosen == version:
        return ""
    which = f"version {chosen}" if chosen else "none"
    return f"{which} is what shall answer (its {LIVE_FILE}); 'tiercel models promote' lets version {version} answer"


def _choice(model: Path) -> dict[str, Any]:
    try:
        return read_object(model / LIVE_FILE)
    except FileNotFoundError:
        return {}
    except ArtefactRefusedError as error:
        _logger.warning("Model '%s' answers with its newest version: %s", model.name, error.message)
        return {}


def _version_in(choice: dict[str, Any]) -> int | None:
    version = choice.get("version")
    return version if type(version) is int and version >= 0 else None


def in_turn(root: Path, model: str) -> list[int]:
    """Versions to try at the start, the first choice first; what is newer than the chosen one is left alone.

    Args:
        root: The repository.
        model: The model's name.
    """
    chosen = chosen_version(root / model)
    return [version for version in versions_on_disk(root, model) if chosen is None or version <= chosen]
