"""The model repository on disk, in Triton's layout: ``DIR/MODEL/VERSION/model.onnx``.

A version is a folder whose name is a number from 1. Beside ``model.onnx`` may lie ``reference.npz`` with inputs and the
outputs that belong to them, and ``model.int8.onnx`` and ``model.fp16.onnx``, which were made of it and answer like it,
but not quite. What is read of ``config.pbtxt`` stands in :mod:`.model_settings`. All functions block.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from tiercel.core.cheap_variants import VariantKind
from tiercel.core.errors import InvalidRequestError
from tiercel.core.model_files import MODEL_FILE, REFERENCE_FILE

_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Artefact:
    """One version on disk."""

    model: str  # name of the model
    version: int  # its number
    path: Path  # the ONNX file; it may turn out to be missing
    reference: Path  # where reference inputs and outputs would lie
    # Whether its answers are to be those of the reference; else it only has to run on these inputs.
    is_compared: bool = True


def checked_name(name: str) -> str:
    """``name`` if it can be a model's, so that it is safe as a folder's name.

    Raises:
        InvalidRequestError: It cannot.
    """
    if not _MODEL_NAME.fullmatch(name):
        raise InvalidRequestError(
            f"model name {name[:200]!r} is impossible: use up to 128 letters, digits, '_', '-' and '.', not '.' first"
        )
    return name


def is_version(text: str) -> bool:
    """Whether ``text`` is a version number as the protocol writes it."""
    return _VERSION.fullmatch(text) is not None


def model_names(root: Path) -> list[str]:
    """Names of the models that have a folder, sorted."""
    return sorted(
        entry.name
        for entry in root.iterdir()
        if _MODEL_NAME.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
    )


def versions_on_disk(root: Path, model: str) -> list[int]:
    """Version numbers of a model, the newest first; empty when it has none or no folder."""
    try:
        with os.scandir(root / checked_name(model)) as entries:
            versions = [int(entry.name) for entry in entries if is_version(entry.name) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(versions, reverse=True)


def artefact(root: Path, model: str, version: int) -> Artefact:
    """Where this version lies."""
    folder = root / checked_name(model) / str(version)
    return Artefact(model, version, folder / MODEL_FILE, folder / REFERENCE_FILE)


def variant_of(artefact: Artefact, kind: VariantKind) -> Artefact:
    """A cheap variant of a version, which may well be missing."""
    return replace(artefact, path=artefact.path.with_name(kind.file), is_compared=False)
