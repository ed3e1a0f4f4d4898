"""Data frames, as pandas has them, as arrays: a column each, or all of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def is_frame(value: object) -> bool:
    """Whether it is a data frame; asked of its attributes, so that nobody imports pandas for it."""
    return hasattr(value, "columns") and hasattr(value, "iloc")


def has_texts(frame: Any) -> bool:
    """Whether some of its columns are no numbers."""
    return any(frame[name].dtype.kind not in "biuf" for name in frame.columns)


def columns_of(frame: Any) -> dict[str, Array]:
    """Its columns by name, of shape [rows, 1]: float32 of numbers and of truth values, else texts."""
    return {str(name): _column(frame[name])[:, None] for name in frame.columns}


def numbers_of(frame: Any) -> Any:
    """All of it as one array, [rows, columns]: categories by their number, and a missing one is not a number.

    Where a column has texts, whatever NumPy makes of the frame.
    """
    columns = [frame[name] for name in frame.columns]
    plain = [_codes(each) if hasattr(each, "cat") else each for each in columns]
    if not plain or any(np.asarray(each).dtype.kind not in "biuf" for each in plain):
        return frame
    return np.column_stack([np.asarray(each) for each in plain])


def in_parts(values: Sequence[Any], names: Sequence[str]) -> Sequence[Any]:
    """What a model is asked, an array an input, where a frame may stand for all of them."""
    if len(values) == 1 and is_frame(values[0]) and len(names) > 1:
        columns = columns_of(values[0])
        if set(names) <= columns.keys():
            return [columns[name] for name in names]
    return values


def _column(column: Any) -> Array:
    return np.asarray(column, np.float32 if column.dtype.kind in "biuf" else np.str_)


def _codes(column: Any) -> Array:
    codes = np.asarray(column.cat.codes, np.float32)
    return np.where(codes < 0, np.float32(np.nan), codes)
