"""Runs models whose inputs or outputs are BF16: NumPy has no such type, so ONNX Runtime's arrays cannot carry it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.tensors import BF16, Array, TensorSpec

_BITS = np.dtype(np.uint16)


def needs_bfloat16(inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> bool:
    """Whether a model with these inputs and outputs has to be run by :func:`run_with_bfloat16`.

    Raises:
        ArtefactRefusedError: It can be run in no way: ONNX Runtime's Python takes no strings where it gives BF16.
    """
    inputs, outputs = tuple(inputs), tuple(outputs)
    gives = any(spec.data_type.dtype == BF16 for spec in outputs)
    if gives and any(spec.data_type.is_bytes for spec in inputs):
        raise ArtefactRefusedError("it takes strings and gives BF16, which ONNX Runtime's Python interface cannot run")
    return gives or any(spec.data_type.dtype == BF16 for spec in inputs)


def run_with_bfloat16(
    session: ort.InferenceSession, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any = None
) -> list[Array]:
    """What ``session.run`` does, for BF16 arrays too; raises what that raises."""
    kinds = {output.name: output.type for output in session.get_outputs()}
    # ONNX Runtime reads these arrays where they are, so they are kept until it has run.
    arrays = {name: array if array.flags.c_contiguous else array.copy() for name, array in feeds.items()}
    if all(kinds[name] != "tensor(bfloat16)" for name in outputs):
        mixed = {name: _value(array) if array.dtype == BF16 else array for name, array in arrays.items()}
        results: list[Array] = session.run(outputs, mixed, options)
        return results
    values = {name: _value(array) for name, array in arrays.items()}
    return [_array(value) for value in session.run_with_ort_values(outputs, values, options)]


def _value(array: Array) -> Any:
    if array.dtype == BF16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(_BITS), TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def _array(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    size = value.tensor_size_in_bytes()
    if not size:
        return np.empty(shape, BF16)
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), BF16).reshape(shape)
