"""Models of every data type and of every kind of shape, with inputs to ask them with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from testing import onnx_models

Array = npt.NDArray[Any]
FLOAT, LONG, STRING, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL
ONNX_KINDS = {
    "BF16": TensorProto.BFLOAT16,
    "BOOL": TensorProto.BOOL,
    "BYTES": TensorProto.STRING,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    **{f"{sign}INT{bits}": getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)},
}


def f32(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=np.int64), dtype=np.float32).reshape(shape)


# Models of every kind of shape, each with the inputs that it is asked with.
ZOO: dict[str, tuple[bytes, list[dict[str, Array]]]] = {
    "scalar": (
        onnx_models.model([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, [])}, {"y": (FLOAT, [])}),
        [{"x": np.array(2.5, np.float32)}],
    ),
    "fixed": (onnx_models.identity(FLOAT, (2, 3)), [{"x": f32(2, 3)}]),
    "everything_free": (onnx_models.identity(LONG, ("a", "b", "c")), [{"x": np.ones((2, 0, 3), np.int64)}]),
    "no_inputs": (
        onnx_models.model(
            [helper.make_node("Identity", ["c"], ["y"])], {}, {"y": (FLOAT, [3])}, {"c": np.ones(3, np.float32)}
        ),
        [{}],
    ),
    "over_all_rows": (
        onnx_models.model(
            [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": (FLOAT, ["n", 3])}, {"y": (FLOAT, [])}
        ),
        [{"x": f32(4, 3)}, {"x": f32(0, 3)}],
    ),
    "rows_come_out_as_they_will": (
        onnx_models.model([helper.make_node("NonZero", ["x"], ["y"])], {"x": (FLOAT, ["n"])}, {"y": (LONG, [1, "k"])}),
        [{"x": np.array([0, 1, 0, 2], np.float32)}, {"x": np.zeros(3, np.float32)}, {"x": f32(0)}],
    ),
    "two_free_axes": (
        onnx_models.model(
            [helper.make_node("MatMul", ["a", "b"], ["y"])],
            {"a": (FLOAT, ["n", "k"]), "b": (FLOAT, ["k", "m"])},
            {"y": (FLOAT, ["n", "m"])},
        ),
        [{"a": f32(2, 3), "b": f32(3, 4)}, {"a": f32(1, 2), "b": f32(2, 1)}, {"a": f32(0, 3), "b": f32(3, 4)}],
    ),
    "words_and_numbers": (
        onnx_models.model(
            [
                helper.make_node("StringConcat", ["w", "w"], ["twice"]),
                helper.make_node("Greater", ["x", "zero"], ["positive"]),
            ],
            {"w": (STRING, ["n", 2]), "x": (FLOAT, ["n"])},
            {"twice": (STRING, ["n", 2]), "positive": (BOOL, ["n"])},
            {"zero": np.array(0, np.float32)},
        ),
        [
            {"w": np.array([["a", "é"], ["", "日"]], np.object_), "x": np.array([1, -1], np.float32)},
            {"w": np.empty((0, 2), np.object_), "x": f32(0)},
        ],
    ),
    "a_word": (onnx_models.identity(STRING, ()), [{"x": np.array("é", np.object_)}]),
}


def put_zoo(repository: Path) -> None:
    """Put version 1 of all of them into a repository: ``identity_TYPE`` for each data type, and the zoo by name."""
    for kind, onnx_kind in ONNX_KINDS.items():
        onnx_models.put(repository, f"identity_{kind}", 1, onnx_models.identity(onnx_kind, ["n", "m"]))
    for name, (content, _) in ZOO.items():
        onnx_models.put(repository, name, 1, content)
