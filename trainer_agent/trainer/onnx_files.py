"""ONNX models that a script hands over itself, as any converter makes them."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tiercel.core.onnx_data import DATA_FILE, DataError, JoinedModel, joined
from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError
from tiercel.trainer_agent.trainer.signature import BATCH_AXIS
from tiercel.trainer_agent.trainer.verification import first_line

LARGEST_BYTES: Final = 2 * 1024**3 - 1
"""Protocol buffers hold no more."""
_FLOAT: Final = 1  # onnx.TensorProto.FLOAT
_IDENTITY_OPSET: Final = 8  # the latest that files of the oldest format may name (IR version 3)
_WEIGHTS_FOLDER: Final = ".weights"


class Serializable(Protocol):
    """An ``onnx.ModelProto``, or what behaves like it."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """The file's content."""


OnnxSource = bytes | str | os.PathLike[str] | Serializable
"""The content of an ONNX file, the path of one, or an ``onnx.ModelProto``."""


@dataclass(frozen=True, slots=True)
class OnnxContent:
    """A model as it was when it was handed over."""

    model: bytes = b""  # the content of its ONNX file
    data: Path | None = None  # a copy of its weights, where these lie beside the model


def content_of(model: OnnxSource, folder: Path | None = None) -> OnnxContent:
    """A model that the script hands over.

    Args:
        model: The model. Of a path, weights may be in files beside it.
        folder: Where copies of such weights are kept, the newest alone; None for the system's folder for such.

    Raises:
        DeliveryFailedError: It is too large, or cannot be read.
        TypeError: It is none of these.
    """
    if isinstance(model, bytes):
        content = model
    elif isinstance(model, str | os.PathLike):
        try:
            path = Path(model)
            _check_size(path.stat().st_size)
            found = joined(path)
            if found is not None:
                return _kept(found, folder)
            content = path.read_bytes()
        except (DataError, OSError) as error:
            raise DeliveryFailedError(f"the ONNX file cannot be read: {error}") from error
    elif hasattr(model, "SerializeToString"):
        try:
            content = model.SerializeToString()
        except Exception as error:  # protobuf's own type, for what is too large above all
            raise DeliveryFailedError(f"the ONNX model cannot be written: {first_line(error)}") from error
    else:
        message = (
            f"a model is handed over as ONNX: bytes, a path or an onnx.ModelProto, and not a {type(model).__name__}"
        )
        raise TypeError(message)
    _check_size(len(content))
    return OnnxContent(content)


def _kept(model: JoinedModel, folder: Path | None) -> OnnxContent:
    """Copy its weights, which the script may write anew in its next epoch, and forget those that were kept before."""
    place = (Path(tempfile.gettempdir(), f"tiercel-{os.getpid()}") if folder is None else folder) / _WEIGHTS_FOLDER
    place.mkdir(parents=True, exist_ok=True)
    target = place / secrets.token_hex(8)
    try:
        content = model.write(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    for other in place.iterdir():
        if other != target:
            other.unlink()
    return OnnxContent(content, target)


def link_or_copy(source: Path, target: Path) -> None:
    """Put a file that nobody changes to another place as well, at no cost where the two are on one disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_checked(content: OnnxContent, path: Path) -> None:
    """Write a model as a file whose inputs and outputs have a free first axis, and its weights beside it.

    Converters declare outputs with the size that one row has (onnxmltools' labels of LightGBM); where all inputs have a
    free first axis, so have all outputs. Scores that are maps at the end (skl2onnx, CatBoost) are left as the tensor
    that they are made of.

    Raises:
        DeliveryFailedError: It is not ONNX, has weights that did not come with it, or takes batches of one size only.
        FallsShortError: Its weights were lost with an earlier run.
    """
    import onnx

    try:
        model = onnx.load_model_from_string(content.model)
    except Exception as error:  # protobuf's error type differs between its implementations
        raise DeliveryFailedError(f"it is not ONNX: {first_line(error)}") from error
    weights = {tensor.name for tensor in model.graph.initializer}
    is_whole = all(tensor.data_location != onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer)
    if content.data is None and not is_whole:
        raise DeliveryFailedError(
            "its weights lie in other files: hand over the path of its file, which is beside them"
        )
    for value in model.graph.input:
        if value.name not in weights and (size := _fixed_size(value)) is not None:
            message = (
                f"its input {value.name} takes batches of {size} rows only; convert it with a free first axis (None)"
            )
            raise DeliveryFailedError(message)
    changed = _without_maps(model) + [value for value in model.graph.output if _fixed_size(value) is not None]
    for value in changed:
        value.type.tensor_type.shape.dim[0].dim_param = BATCH_AXIS
    path.write_bytes(model.SerializeToString() if changed else content.model)
    if content.data is not None:
        try:
            # No link: the onnx package takes a file with two names for an attack.
            shutil.copyfile(content.data, path.with_name(DATA_FILE))
        except FileNotFoundError as error:
            raise FallsShortError("the model's weights were lost with an earlier run") from error


def _without_maps(model: Any) -> list[Any]:
    """Let outputs that are maps from class to score be the scores instead; returns these outputs."""
    outputs, found = {value.name: value for value in model.graph.output}, []
    for node in model.graph.node:
        if node.op_type != "ZipMap" or node.output[0] not in outputs:
            continue
        value, classes = outputs[node.output[0]], sum(len(each.ints) + len(each.strings) for each in node.attribute)
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        scores = value.type.tensor_type
        scores.elem_type = _FLOAT
        scores.shape.dim.add()
        scores.shape.dim.add(dim_value=classes)
        found.append(value)
    if found and all(each.domain for each in model.opset_import):
        model.opset_import.add(domain="", version=_IDENTITY_OPSET)  # CatBoost's files name their own operators only
    return found


def _fixed_size(value: Any) -> int | None:
    """The size of the first axis of an input or output, where it has one."""
    axes = value.type.tensor_type.shape.dim
    return int(axes[0].dim_value) if len(axes) > 0 and axes[0].HasField("dim_value") else None


def _check_size(size: int) -> None:
    if size > LARGEST_BYTES:
        message = (
            f"the ONNX model has {size / 1024**3:.1f} GiB, and protocol buffers hold 2: save weights beside it "
            "(onnx.save(..., save_as_external_data=True)), and hand over its path"
        )
        raise DeliveryFailedError(message)
