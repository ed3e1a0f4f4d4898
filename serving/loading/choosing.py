"""What lies on disk of a model: whether there is any of it, and which version a load is about. All functions block."""

from __future__ import annotations

from pathlib import Path

from tiercel.core.errors import ArtefactRefusedError, NotFoundError
from tiercel.core.model_files import LIVE_FILE, MODEL_FILE, VARIANTS_FILE
from tiercel.serving.loading import rolled_back as marks
from tiercel.serving.loading import suspects
from tiercel.serving.loading.load_parameters import LoadParameters
from tiercel.serving.loading.trial_supervision import was_rolled_back
from tiercel.serving.models import repository
from tiercel.serving.models.chosen import in_turn


def is_there(root: Path, name: str) -> bool:
    """Whether a model has a version or, as an endpoint with variants, the file that lists these."""
    return bool(repository.versions_on_disk(root, name)) or (root / name / VARIANTS_FILE).exists()


def version_wanted(root: Path, name: str, wanted: LoadParameters) -> int:
    """The version that a load is about, found in one go: a change of threads costs requests more than a small file.

    Raises:
        InvalidRequestError: The name is impossible.
        NotFoundError: There is no such version of it on disk, or none is to answer here.
        ArtefactRefusedError: It was rolled back or is held back, and was not named.
    """
    versions = repository.versions_on_disk(root, name)
    if not versions:
        raise NotFoundError(f"model '{name}' has no version on disk; put one at {name}/1/{MODEL_FILE}")
    if wanted.version is not None and wanted.version not in versions:
        there = ", ".join(map(str, versions[:20]))
        raise NotFoundError(f"version {wanted.version} of model '{name}' is not on disk; there is {there}")
    if wanted.version is not None:
        return wanted.version
    first = next(iter(in_turn(root, name)), None)
    if first is None:
        raise NotFoundError(f"no version of model '{name}' is to answer here, says its {LIVE_FILE}; name one")
    folder = repository.artefact(root, name, first).path.parent
    rolled_back = marks.why_rolled_back(folder)
    if rolled_back is not None:
        raise was_rolled_back(name, first, rolled_back)
    held_back = suspects.why_held_back(folder)
    if held_back is not None:
        raise ArtefactRefusedError(f"version {first} of model '{name}' is held back: {held_back}")
    return first
