"""ONNX models that a script hands over itself, as any converter makes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Protocol

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.signature import BATCH_AXIS
from tiercel.trainer_agent.trainer.verification import first_line

LARGEST_BYTES: Final = 2 * 1024**3 - 1
"""Protocol buffers hold no more."""


class Serializable(Protocol):
    """An ``onnx.ModelProto``, or what behaves like it."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """The file's content."""


OnnxSource = bytes | str | os.PathLike[str] | Serializable
"""The content of an ONNX file, the path of one, or an ``onnx.ModelProto``."""


def content_of(model: OnnxSource) -> bytes:
    """The content of an ONNX file.

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
            content = path.read_bytes()
        except OSError as error:
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
    return content


def write_checked(content: bytes, path: Path) -> None:
    """Write a model as one file whose inputs and outputs have a free first axis.

    Converters declare outputs with the size that one row has (onnxmltools' labels of LightGBM); where all inputs have a
    free first axis, so have all outputs.

    Raises:
        DeliveryFailedError: It is not ONNX, has weights in other files, or takes batches of one size only.
    """
    import onnx

    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's error type differs between its implementations
        raise DeliveryFailedError(f"it is not ONNX: {first_line(error)}") from error
    weights = {tensor.name for tensor in model.graph.initializer}
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise DeliveryFailedError("its weights lie in other files; save it as one (save_as_external_data=False)")
    for value in model.graph.input:
        if value.name not in weights and (size := _fixed_size(value)) is not None:
            message = (
                f"its input {value.name} takes batches of {size} rows only; convert it with a free first axis (None)"
            )
            raise DeliveryFailedError(message)
    changed = [value for value in model.graph.output if _fixed_size(value) is not None]
    for value in changed:
        value.type.tensor_type.shape.dim[0].dim_param = BATCH_AXIS
    path.write_bytes(model.SerializeToString() if changed else content)


def _fixed_size(value: Any) -> int | None:
    """The size of the first axis of an input or output, where it has one."""
    axes = value.type.tensor_type.shape.dim
    return int(axes[0].dim_value) if len(axes) > 0 and axes[0].HasField("dim_value") else None


def _check_size(size: int) -> None:
    if size > LARGEST_BYTES:
        message = f"the ONNX model has {size / 1024**3:.1f} GiB, and a model must fit into one file of 2 GiB"
        raise DeliveryFailedError(message)
