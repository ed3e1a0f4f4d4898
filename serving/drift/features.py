"""What is compared of a request's inputs: a few numbers of one row, however large it is."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np

from tiercel.serving.tensors import Array, TensorSpec

MOST_FEATURES: Final = 32
# A row of no more elements is compared element by element.
_FEW_ELEMENTS: Final = 16
# Of a larger row no more elements are looked at, evenly spread.
_MOST_ELEMENTS: Final = 4096
_STRETCHES: Final = 4
_MOST_NAME: Final = 40
_STATISTICS: Final = ("mean", "deviation", "least", "largest", *(f"part {n + 1}" for n in range(_STRETCHES)))
# In place of what is no number, or none that is finite.
_MOST: Final = 1e300
# Categories have no order, so they are compared in two that say nothing: by hashes.
_SALTS: Final = (0x2545F491, 0x9E3779B1)
_HASHED: Final = tuple(f"value, order {n + 1}" for n in range(len(_SALTS)))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one input is reduced."""

    name: str  # the input
    has_rows: bool  # whether its first axis is one of rows
    elements: int  # of a row, where it is compared element by element; else 0
    hashes: bool  # whether its elements are taken for categories
    counts: bool  # whether its elements are taken for quantities

    def labels(self) -> list[str]:
        """What its numbers are called."""
        name = self.name[:_MOST_NAME]
        if self.elements:
            return [f"{name}[{n}]" for n in range(self.elements)] if self.elements > 1 else [name]
        told = [f"{name} {each}" for each in _STATISTICS] if self.counts else []
        return told + ([f"{name} {each}" for each in _HASHED] if self.hashes else [])

    def numbers(self, array: Array, draw: Random) -> list[float]:
        """Its numbers, of one row."""
        row = array[draw.randrange(len(array))] if self.has_rows else array
        row = np.asarray(row).reshape(-1)
        if self.elements:
            return row[: self.elements].astype(np.float64).tolist() if row.size == self.elements else []
        if row.size > _MOST_ELEMENTS:
            row = row[:: -(-row.size // _MOST_ELEMENTS)]
        told = _statistics(row) if self.counts else []
        return told + ([_hash(row[draw.randrange(row.size)], salt) for salt in _SALTS] if self.hashes else [])


def _statistics(row: Array) -> list[float]:
    numbers = row.astype(np.float64)
    parts = [float(part.mean()) if part.size else 0.0 for part in np.array_split(numbers, _STRETCHES)]
    return [float(numbers.mean()), float(numbers.std()), float(numbers.min()), float(numbers.max()), *parts]


def _hash(element: Any, salt: int) -> float:
    content = element.encode() if isinstance(element, str) else bytes(element) if isinstance(element, bytes) else b""
    return float(zlib.crc32(content or repr(element).encode(), salt))


class Features:
    """Reduces the inputs of a model's requests.

    Inputs of a few elements are compared element by element; of larger ones a few statistics are, of whole numbers and
    texts a value that is drawn, too. Inputs beyond :data:`MOST_FEATURES` are left out.

    Args:
        specs: What the model takes.
        draw: Draws the row of a request, and the value of a row.

    Attributes:
        labels: What the numbers are called, in their order; empty where nothing can be compared.
    """

    def __init__(self, specs: Mapping[str, TensorSpec], draw: Random) -> None:
        self._draw = draw
        self._kinds: list[_Kind] = []
        self.labels: tuple[str, ...] = ()
        for kind in map(_kind_of, specs.values()):
            labels = (*self.labels, *kind.labels())
            if len(labels) <= MOST_FEATURES:
                self._kinds.append(kind)
                self.labels = labels

    def numbers(self, feeds: Mapping[str, Array]) -> list[float]:
        """The numbers of one row of a request, as :attr:`labels` names them; empty where it has none to compare."""
        if any(feeds[kind.name].size == 0 for kind in self._kinds):
            return []
        with np.errstate(all="ignore"):  # what is no number, or overflows, is compared like any other value
            found = [number for kind in self._kinds for number in kind.numbers(feeds[kind.name], self._draw)]
        if len(found) != len(self.labels):
            return []
        finite: list[float] = np.clip(np.nan_to_num(found, nan=_MOST), -_MOST, _MOST).tolist()
        return finite


def _kind_of(spec: TensorSpec) -> _Kind:
    has_rows = bool(spec.shape) and spec.shape[0] == -1
    inner = spec.shape[1:] if has_rows else spec.shape
    known = -1 not in inner
    elements = int(np.prod(inner)) if known else 0
    kind = np.dtype(spec.data_type.dtype).kind
    is_text = kind == "O"
    is_few = 0 < elements <= _FEW_ELEMENTS and not is_text
    is_category = is_text or (kind in "iu" and np.dtype(spec.data_type.dtype).itemsize > 1)
    return _Kind(spec.name, has_rows, elements if is_few else 0, is_category, not is_text)
