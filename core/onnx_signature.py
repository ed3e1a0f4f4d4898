"""What an ONNX model takes and gives, read from its file without running anything of it or trusting it. Blocks.

A walk over the few fields of the protocol buffer that say so; weights are stepped over, so that size costs nothing.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.endpoints import Signature, Tensor

MAX_TENSORS: Final = 64
MAX_NAME_BYTES: Final = 256
MAX_AXES: Final = 16
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


class _NoModelError(ValueError):
    """These bytes are no protocol buffer of this kind, or say more than is read."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A part of a file that is a message."""

    data: mmap.mmap
    start: int
    end: int

    def fields(self) -> Iterator[tuple[int, int | _Message]]:
        """Numbers of fields, and what they hold: a number or a part of the file; others are left out."""
        at = self.start
        while at < self.end:
            key, at = self._varint(at)
            match key & 7:
                case 0:
                    value, at = self._varint(at)
                    yield key >> 3, value
                case 1:
                    at += 8
                case 2:
                    size, begin = self._varint(at)
                    at = begin + size
                    if at > self.end:
                        raise _NoModelError
                    yield key >> 3, _Message(self.data, begin, at)
                case 5:
                    at += 4
                case _:
                    raise _NoModelError

    def parts(self, number: int) -> Iterator[_Message]:
        """What the fields of this number hold, where that is a part of the file."""
        return (value for field, value in self.fields() if field == number and isinstance(value, _Message))

    def number(self, number: int) -> int | None:
        """What the last field of this number holds, where that is a number."""
        found = [value for field, value in self.fields() if field == number and isinstance(value, int)]
        return found[-1] if found else None

    def text(self, number: int) -> str:
        """What the last field of this number holds, as text."""
        name = ""
        for part in self.parts(number):
            if part.end - part.start > MAX_NAME_BYTES:
                raise _NoModelError
            name = self.data[part.start : part.end].decode()
        return name

    def _varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while at < self.end and shift < 64:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise _NoModelError


def read_signature(path: Path, start: int = 0, size_bytes: int | None = None) -> Signature | None:
    """What the model in a file takes and gives; None for a file that does not say, or more than a model should have.

    Args:
        path: The file.
        start: Byte of it with which the model begins.
        size_bytes: Of the model; None for all that is left.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _signature(_Message(data, start, len(data) if size_bytes is None else start + size_bytes))
    except (_NoModelError, UnicodeDecodeError, OSError, ValueError):
        return None


def _signature(model: _Message) -> Signature:
    graph = next(model.parts(_GRAPH), None)
    if graph is None:
        raise _NoModelError
    weights: set[str] = set()
    inputs, outputs = [], []
    for field, part in graph.fields():
        if not isinstance(part, _Message):
            continue
        if field == _WEIGHT:
            weights.add(part.text(_WEIGHT_NAME))
        elif field == _INPUT:
            inputs.append(_tensor(part))
        elif field == _OUTPUT:
            outputs.append(_tensor(part))
        if max(len(inputs) - len(weights), len(outputs)) > MAX_TENSORS or len(weights) > _MAX_WEIGHTS:
            raise _NoModelError
    asked = [tensor for tensor in inputs if tensor.name not in weights]
    if len(asked) > MAX_TENSORS:
        raise _NoModelError
    return Signature(tuple(asked), tuple(outputs))


def _tensor(value: _Message) -> Tensor:
    kind = next(value.parts(_TYPE), None)
    tensor = None if kind is None else next(kind.parts(_TENSOR_TYPE), None)
    if tensor is None:  # a sequence or the like, which is not served
        raise _NoModelError
    shape = next(tensor.parts(_SHAPE), None)
    lengths = [] if shape is None else [axis.number(_LENGTH) for axis in shape.parts(_AXIS)]
    if len(lengths) > MAX_AXES or any(length is not None and length >= 2**63 for length in lengths):
        raise _NoModelError
    return Tensor(
        value.text(_NAME),
        _DATATYPES.get(tensor.number(_ELEMENT) or 0, ""),
        None if shape is None else tuple(-1 if length is None else length for length in lengths),
    )
