"""Brings up the cheap variants of a version beside it. Without one that is fit, the version answers alone."""

from __future__ import annotations

import logging
from pathlib import Path

from tiercel.core.cheap_variants import CHEAP, VariantKind
from tiercel.core.errors import TiercelError
from tiercel.serving.loading.loader import Loader
from tiercel.serving.models import repository
from tiercel.serving.models.accuracy import accuracy_of
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.repository import Artefact
from tiercel.serving.runtime.profile import is_faster

_logger = logging.getLogger(__name__)


async def add_cheap_variants(loader: Loader, artefact: Artefact, new: LoadedVersion) -> LoadedVersion:
    """A version that nobody asks yet, with those of its cheap variants that are worth it on this node."""
    try:
        for kind in CHEAP if new.accuracy is not None else ():
            await _add(loader, kind, repository.variant_of(artefact, kind), new)
    except BaseException:
        for each in new.by_kind.values():
            await loader.free(each.close())
        raise
    return new


async def _add(loader: Loader, kind: VariantKind, variant: Artefact, new: LoadedVersion) -> None:
    accuracy = await loader.look_up(_accuracy, variant.path, kind)
    if accuracy is None:
        return
    # An int8 model is made for CPUs; one in float16 is faster where its version is, if anywhere.
    build = loader.session if kind is VariantKind.FP16 else loader.session_on_cpu
    try:
        session = await build(variant)
        if not is_faster(session.batching.profile, new.session.batching.profile):
            await loader.free(session)
            _logger.info("Version %s of model '%s' answers without %s, which is not faster here", *_names(new), kind)
            return
    except TiercelError as error:
        _logger.warning("Version %s of model '%s' answers without %s: %s", *_names(new), kind, error.message)
        return
    session.accuracy = accuracy
    new.cheap[kind] = LoadedVersion(new.model, new.version, session, new.account, new.statistics)


def _names(version: LoadedVersion) -> tuple[str, str]:
    return version.version_text, version.model


def _accuracy(path: Path, kind: VariantKind) -> float | None:
    """The accuracy of a cheap variant; None where there is no such model, or nobody knows. Blocks."""
    return accuracy_of(path.parent, kind) if path.exists() else None
