"""What an ONNX model takes and gives, read from its file without running anything of it or trusting it. Blocks.

A walk over the few fields of the protocol buffer that say so; weights are stepped over, so that size costs nothing.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from tiercel.core.endpoints import Signature, Tensor
from tiercel.core.protobuf_walk import MAX_NAME_BYTES, Message, NoMessageError

MAX_TENSORS: Final = 256
"""Inputs, and outputs: a table with a column each, or a decoder with a cache for each layer, has many."""
MAX_AXES: Final = 16
UNREADABLE: Final = (
    f"is no ONNX model, only a part of one, or has more than {MAX_TENSORS} inputs or outputs, a name of more than "
    f"{MAX_NAME_BYTES} bytes, or an input or output that is no tensor; export it again"
)
"""What a file is of which :func:`read_signature` says nothing."""
# Weights may be inputs of the graph as well, in old files: nobody has to give them.
_MAX_WEIGHTS: Final = 100_000

# onnx.proto: ModelProto.graph; GraphProto.initializer, .input, .output; ValueInfoProto.name, .type; TensorProto.name;
# TypeProto.tensor_type; TypeProto.Tensor.elem_type, .shape; TensorShapeProto.dim; Dimension.dim_value.
_GRAPH, _WEIGHT, _INPUT, _OUTPUT = 7, 5, 11, 12
_NAME, _TYPE, _WEIGHT_NAME, _TENSOR_TYPE, _ELEMENT, _SHAPE, _AXIS, _LENGTH = 1, 2, 8, 1, 1, 2, 1, 1
_DATATYPES: Final = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip


def read_signature(path: Path, start: int = 0, size_bytes: int | None = None) -> Signature | None:
    """What the model in a file takes and gives; None for a file that does not say, or more than a model should have.

    Args:
        path: The file.
        start: Byte of it with which the model begins.
        size_bytes: Of the model; None for all that is left.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _signature(Message(data, start, len(data) if size_bytes is None else start + size_bytes))
    except (NoMessageError, UnicodeDecodeError, OSError, ValueError):
        return None


def _signature(model: Message) -> Signature:
    graph = next(model.parts(_GRAPH), None)
    if graph is None:
        raise NoMessageError
    weights: set[str] = set()
    inputs, outputs = [], []
    for field, part in graph.fields():
        if not isinstance(part, Message):
            continue
        if field == _WEIGHT:
            weights.add(part.text(_WEIGHT_NAME))
        elif field == _INPUT:
            inputs.append(_tensor(part))
        elif field == _OUTPUT:
            outputs.append(_tensor(part))
        if max(len(inputs) - len(weights), len(outputs)) > MAX_TENSORS or len(weights) > _MAX_WEIGHTS:
            raise NoMessageError
    asked = [tensor for tensor in inputs if tensor.name not in weights]
    if len(asked) > MAX_TENSORS:
        raise NoMessageError
    return Signature(tuple(asked), tuple(outputs))


def _tensor(value: Message) -> Tensor:
    kind = next(value.parts(_TYPE), None)
    tensor = None if kind is None else next(kind.parts(_TENSOR_TYPE), None)
    if tensor is None:  # a sequence or the like, which is not served
        raise NoMessageError
    shape = next(tensor.parts(_SHAPE), None)
    lengths = [] if shape is None else [axis.number(_LENGTH) for axis in shape.parts(_AXIS)]
    if len(lengths) > MAX_AXES or any(length is not None and length >= 2**63 for length in lengths):
        raise NoMessageError
    return Tensor(
        value.text(_NAME),
        _DATATYPES.get(tensor.number(_ELEMENT) or 0, ""),
        None if shape is None else tuple(-1 if length is None else length for length in lengths),
    )
