"""Weights beside a model's file: what its tensors may say of them. Runs where artefacts are verified."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx

from tiercel.core.errors import ArtefactRefusedError
from tiercel.core.onnx_data import DATA_FILE, DataError, data_of

_NUMBERS = ("offset", "length")
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class DataBeside:
    """The file with a model's weights."""

    path: Path  # where it is
    size_bytes: int  # what it has


def data_beside(model: Path) -> DataBeside | None:
    """The file with the weights of a model that has a folder of its own; None where there is none."""
    path = model.with_name(DATA_FILE)
    return DataBeside(path, path.stat().st_size) if path.is_file() else None


def check_external(tensor: onnx.TensorProto, beside: DataBeside | None) -> None:
    """Check that a tensor which is not in the model's file is in the one beside it, and nowhere else.

    Raises:
        ArtefactRefusedError: It is not.
    """
    name = f"tensor '{tensor.name[:100]}'"
    said = {entry.key: entry.value for entry in tensor.external_data}
    is_plain = len(said) == len(tensor.external_data) and said.keys() <= {"location", *_NUMBERS}
    # ONNX Runtime also knows locations that are addresses in memory, which would be anything of this process.
    if not is_plain or said.get("location") != DATA_FILE:
        where = said.get("location", "")[:100]
        raise ArtefactRefusedError(
            f"{name} lies outside of the file, in {where!r}; a server takes weights in {DATA_FILE} beside it, as "
            "'tiercel deploy' puts them, or in the file (external_data=False)"
        )
    if beside is None:
        raise ArtefactRefusedError(f"{name} lies outside of the file, and there is no {DATA_FILE} beside it")
    numbers = [said.get(key, "0") for key in _NUMBERS]
    if not all(text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS for text in numbers):
        raise ArtefactRefusedError(f"{name} has a place in {DATA_FILE} that is no number")
    if sum(map(int, numbers)) > beside.size_bytes:
        raise ArtefactRefusedError(f"{name} lies beyond the end of {DATA_FILE}, which has {beside.size_bytes} bytes")


def check_digest(model: Path, beside: DataBeside | None) -> None:
    """Check that the weights are those that the model means, where it says which.

    Raises:
        ArtefactRefusedError: They are not.
    """
    said = data_of(model)
    if said is None:
        return
    if beside is None:
        raise ArtefactRefusedError(f"its weights are in {DATA_FILE}, which is missing")
    with beside.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        said.check(beside.size_bytes, digest)
    except DataError as error:
        raise ArtefactRefusedError(str(error)) from error
