"""The cheap variants of a file that is deployed: made, measured and timed here, as runs do with theirs."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.core.deploying import MAX_REFERENCE_BYTES
from tiercel.core.errors import InvalidSpecError, wrong_field
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.cheap_variants import measured
from tiercel.trainer_agent.trainer.signature import Array
from tiercel.trainer_agent.trainer.variant_making import make
from tiercel.trainer_agent.trainer.verification import OnnxModel, first_line

# Of fewer rows one that is answered otherwise is more than a variant may lose.
LEAST_ROWS: Final = 100
CALIBRATION_ROWS: Final = 128
_ROWS_AT_ONCE: Final = 16
_LABEL: Final = "label"


def make_variants(
    kinds: Iterable[VariantKind], model: Path, calibration: Path, accuracy: float, scratch: Path
) -> list[CheapVariant]:
    """Make cheap variants of a file, and find out how accurate and how fast they are. Blocks, for minutes perhaps.

    How much less accurate it is, is how many rows less it answers rightly, where they have labels; else, of how many
    it says something else than the model, which is no less than that.

    Args:
        kinds: Which.
        model: The ONNX file.
        calibration: Real rows: an ``.npz`` file with ``input_NAME`` of shape [rows, …] and perhaps ``label`` of shape
            [rows], or an ``.npy`` file with the rows of the only input.
        accuracy: Of the model, a fraction.
        scratch: An empty folder that is there for it.

    Returns:
        What came of each, with a reason where there is none that could be shipped; files of the others lie
        in the folder.

    Raises:
        InvalidSpecError: The rows cannot be used; says why.
    """
    arrays = _read(calibration)
    labels = arrays.pop(_LABEL, None)
    return [_made(kind, model, arrays, labels, accuracy, scratch) for kind in kinds]


def _made(
    kind: VariantKind, model: Path, arrays: Mapping[str, Array], labels: Array | None, accuracy: float, scratch: Path
) -> CheapVariant:
    target = scratch / kind.file
    try:
        original = OnnxModel(model, 1, accelerated=kind is VariantKind.FP16)
        feeds = _feeds(original, arrays)
        plain = _classes(original, feeds)
        few = {name: array[:CALIBRATION_ROWS] for name, array in feeds.items()}
        with TemporaryDirectory(dir=scratch) as work:
            made = make(kind, model, target, few, Path(work))
        variant = OnnxModel(target, 1, original.input_names, accelerated=original.is_accelerated)
        value = min(1.0, accuracy - _loss(plain, _classes(variant, feeds), labels))
        return measured(kind, made, value, (original, variant), few, target)
    except DeliveryFailedError as error:
        return CheapVariant(kind, reason=error.message)


def _read(path: Path) -> dict[str, Array]:
    """The arrays of a file of rows; one of an ``.npy`` file has no name."""
    try:
        _check_size(path)
        found: Any = np.load(path, allow_pickle=False)
        arrays = {"": found} if isinstance(found, np.ndarray) else dict(found)
    except InvalidSpecError:
        raise
    except OSError as error:
        raise wrong_field("calibration", f"{path} cannot be read ({error.strerror or error})") from error
    except Exception as error:  # whatever a broken file provokes
        raise wrong_field("calibration", f"{path} is no file of numpy.save or numpy.savez ({error})") from error
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(lengths) != 1 or min(lengths) < LEAST_ROWS:
        raise wrong_field(
            "calibration", f"all arrays in {path} must have the same number of rows, {LEAST_ROWS} or more"
        )
    return {name.removeprefix("input_"): array for name, array in arrays.items()}


def _check_size(path: Path) -> None:
    """Refuse what takes too much memory: arrays in a zip archive may be a thousand times as large as it."""
    size_bytes = path.stat().st_size
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size_bytes = max(size_bytes, sum(member.file_size for member in archive.infolist()))
    if size_bytes > MAX_REFERENCE_BYTES:
        raise wrong_field("calibration", f"{path} has more than {MAX_REFERENCE_BYTES} bytes; give fewer rows")


def _feeds(model: OnnxModel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    if set(arrays) == {""} and len(model.taken) == 1:
        arrays = {model.taken[0]: arrays[""]}
    if set(arrays) != set(model.taken):
        wanted = ", ".join(f"input_{name}" for name in model.taken)
        raise wrong_field("calibration", f"must have an array for each input, and no other but {_LABEL}: {wanted}")
    try:
        return model.feeds_of(arrays)
    except (TypeError, ValueError) as error:
        raise wrong_field("calibration", f"has values that the model does not take ({error})") from error


def _classes(model: OnnxModel, feeds: Mapping[str, Array]) -> Array:
    """What the model's first output says of each row: its class or label."""
    count, found = len(next(iter(feeds.values()))), []
    for at in range(0, count, _ROWS_AT_ONCE):
        try:
            answers = model.answers({name: array[at : at + _ROWS_AT_ONCE] for name, array in feeds.items()})[0]
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise wrong_field("calibration", f"the model does not take these rows ({first_line(error)})") from error
        found.append(answers)
    output = np.concatenate(found)
    if output.ndim == 2 and output.shape[1] > 1 and len(output) == count:
        return np.asarray(output.argmax(axis=1))
    labels = output.reshape(-1)
    if len(labels) != count or labels.dtype.kind == "f":
        raise wrong_field(
            "calibration", "is for models whose first output says a class of each row, which this does not"
        )
    return labels


def _loss(plain: Array, variant: Array, labels: Array | None) -> float:
    """By how much the second is less accurate."""
    if labels is None:
        return float(np.mean(plain != variant))
    return float(np.mean(plain == labels) - np.mean(variant == labels))
