"""Brings up the int8 model of a version beside it. Without one that is fit, the version answers alone."""

from __future__ import annotations

import logging
from pathlib import Path

from tiercel.core.errors import TiercelError
from tiercel.core.quantised import INT8
from tiercel.serving.loading.loader import Loader
from tiercel.serving.models import repository
from tiercel.serving.models.accuracy import accuracy_of
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.repository import Artefact
from tiercel.serving.runtime.profile import is_faster

_logger = logging.getLogger(__name__)


async def add_int8(loader: Loader, artefact: Artefact, new: LoadedVersion) -> LoadedVersion:
    """A version that nobody asks yet, with its int8 model where it has one that is worth it on this node."""
    int8 = repository.int8_of(artefact)
    accuracy = await loader.look_up(_accuracy, int8.path)
    if accuracy is None or new.accuracy is None:
        return new
    try:
        session = await loader.session_on_cpu(int8)
        if not is_faster(session.batching.profile, new.session.batching.profile):
            await loader.free(session)
            _logger.info("Version %s of model '%s' answers without int8, which is not faster here", *_names(new))
            return new
    except TiercelError as error:
        _logger.warning("Version %s of model '%s' answers without int8: %s", *_names(new), error.message)
        return new
    except BaseException:
        await loader.free(new.close())
        raise
    session.accuracy = accuracy
    new.int8 = LoadedVersion(new.model, new.version, session, new.account, new.statistics)
    return new


def _names(version: LoadedVersion) -> tuple[str, str]:
    return version.version_text, version.model


def _accuracy(path: Path) -> float | None:
    """The accuracy of an int8 model; None where there is no such model, or nobody knows. Blocks."""
    return accuracy_of(path.parent, INT8) if path.exists() else None
