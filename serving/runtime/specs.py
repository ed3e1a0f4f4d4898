"""What a session says of itself and of what went wrong, in this server's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.tensors import BY_ONNX, TensorSpec


def first_line(error: BaseException) -> str:
    """The first line of an error, cut to a length that fits a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:400]


def tensor_specs(nodes: Sequence[Any], kind: str) -> dict[str, TensorSpec]:
    """Inputs or outputs as ONNX Runtime describes them, by name.

    Raises:
        ArtefactRefusedError: One is not a tensor, or has elements the protocol cannot carry.
    """
    specs: dict[str, TensorSpec] = {}
    for node in nodes:
        data_type = BY_ONNX.get(node.type)
        if data_type is None:
            raise ArtefactRefusedError(f"{kind} '{node.name}' is a {node.type}, which cannot be served")
        shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in node.shape)
        specs[node.name] = TensorSpec(node.name, data_type, shape)
    return specs
