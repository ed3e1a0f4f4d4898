"""Which version of a model answers where nobody names one: the newest, unless ``MODEL/live.json`` says another.

``{"version": 2}``: version 2, also when the server is started again; ``{"version": 0}``: none of them. Other keys are
for whoever wrote the file. All functions block, for as long as a small file takes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.models.accuracy import read_object

FILE_NAME = "live.json"

_logger = logging.getLogger(__name__)


def chosen_version(model: Path) -> int | None:
    """The version that is named in a model's folder, 0 for none; None where nobody has chosen."""
    try:
        version = read_object(model / FILE_NAME).get("version")
    except FileNotFoundError:
        return None
    except ArtefactRefusedError as error:
        _logger.warning("Model '%s' answers with its newest version: %s", model.name, error.message)
        return None
    return version if type(version) is int and version >= 0 else None


def in_turn(versions: Sequence[int], chosen: int | None) -> list[int]:
    """Versions to try at the start, the first choice first; what is newer than the chosen one is left alone.

    Args:
        versions: Those on disk, the newest first.
        chosen: See :func:`chosen_version`.
    """
    return [version for version in versions if chosen is None or version <= chosen]
