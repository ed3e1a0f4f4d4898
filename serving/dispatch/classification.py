"""Triton's classification extension: of an output its largest values, where they are, and what that means. Pure.

A class is written ``VALUE:INDEX`` or, where there is a label, ``VALUE:INDEX:LABEL``. As in Triton values come as C's
``%f`` and ``%d`` write them, in falling order; an index counts over all axes but the batch's. What Triton leaves open
is settled here: of equal values the one with the smaller index is first, NaN is last, false is 0, and strings, which
Triton does not classify, are ordered by code points and written as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tiercel.core.errors import TiercelError
from tiercel.serving.models.configuration import has_batch_axis
from tiercel.serving.tensors import BY_NAME, Array, TensorSpec

if TYPE_CHECKING:
    from tiercel.serving.models.loaded_version import LoadedVersion
    from tiercel.serving.requests import InferResult


def classified(array: Array, count: int, labels: Sequence[str] = (), *, batched: bool) -> Array:
    """The largest values of a tensor.

    Args:
        array: The tensor.
        count: How many are wanted, from 1; fewer come back where there are fewer.
        labels: By index; an empty one, or none for an index, is left out.
        batched: Whether the first axis is the batch's, so that each of its rows is classified by itself.

    Returns:
        Strings of shape [rows, k] with ``batched``, else [k].
    """
    rows = array.reshape(array.shape[0], _row_size(array)) if batched else array.reshape(1, -1)
    order = _descending(rows)[:, :count]
    write = _writer(array)
    classes = np.empty(order.shape, np.object_)
    for row, places in enumerate(order.tolist()):
        for rank, place in enumerate(places):
            label = labels[place] if place < len(labels) else ""
            classes[row, rank] = f"{write(rows[row, place])}:{place}" + (f":{label}" if label else "")
    return classes if batched else classes[0]


def _row_size(array: Array) -> int:
    """Elements of a row; said and not left to NumPy, which cannot tell it of a batch without rows."""
    return int(np.prod(array.shape[1:], dtype=np.int64))


def _descending(rows: Array) -> Array:
    """Indices of the values of each row, the largest first, equal ones in the order of their indices."""
    if rows.dtype.kind not in "biuO":  # of what is not a number NumPy says that it is last
        return np.argsort(-rows.astype(np.float64), axis=1, kind="stable")
    last = rows.shape[1] - 1
    # Backwards and back again, since what is stable for rising values is to be so for falling ones.
    order: Array = last - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return order


def _writer(array: Array) -> Callable[[Any], str]:
    """How a value of this type is written."""
    kind = array.dtype.kind
    if kind == "O":
        return str
    if kind in "biu":
        return lambda value: str(int(value))
    return lambda value: f"{float(value):f}"


_STRINGS = BY_NAME["BYTES"]


def as_classes(
    on_answer: Callable[[InferResult | TiercelError], None], wanted: Mapping[str, int], loaded: LoadedVersion
) -> Callable[[InferResult | TiercelError], None]:
    """``on_answer``, but given classes instead of tensors."""
    session = loaded.session
    batched = has_batch_axis(session.inputs.values(), session.outputs.values())

    def answer(result: InferResult | TiercelError) -> None:
        if not isinstance(result, TiercelError):
            for position, output in enumerate(result.outputs):
                count = wanted.get(output.spec.name)
                if count is not None:
                    has_rows = batched and output.array.ndim > 0
                    array = classified(output.array, count, loaded.labels, batched=has_rows)
                    spec = TensorSpec(output.spec.name, _STRINGS, (-1,) * array.ndim)
                    result.outputs[position] = replace(output, spec=spec, array=array)
        on_answer(result)

    return answer
