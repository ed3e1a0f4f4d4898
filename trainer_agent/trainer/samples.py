"""Rows on which an exported model has to agree with the original: some that it was really asked about, some made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiercel.trainer_agent.trainer.signature import Array, Batch, Signature

# An odd number that no example has: an export that froze the batch size shows itself.
REFERENCE_ROWS = 7
# Enough to meet rare branches, few enough to cost next to nothing.
KEPT_ROWS = 128
# Of these, so many are drawn again with other signs and sizes.
DRAWN_ROWS = 32

# Of the example's, on axes that are free beside the batch.
OTHER_LENGTHS = (0.5, 1.7)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows that were made up."""

    difference: str  # how they differ from real ones
    batch: Batch  # the rows


def _shifted(array: Array) -> Array:
    shifted: Array = array - 2 * np.abs(array).mean(dtype=np.float64).astype(array.dtype)
    return shifted


_CHANGES: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("of the other sign", np.negative),
    ("ten times as large", lambda array: 10 * array),
    ("a hundredth as large", lambda array: 0.01 * array),
    ("shifted below zero", _shifted),
    ("zero", np.zeros_like),
)


class Samples:
    """Keeps some of the rows that the script evaluates on, since real rows find what made-up ones do not."""

    def __init__(self, signature: Signature, *, invents: bool = True) -> None:
        self._signature, self._invents = signature, invents
        self._rows: Batch | None = None

    @property
    def has_rows(self) -> bool:
        """Whether any rows were remembered."""
        return self._rows is not None

    @property
    def rows(self) -> Batch | None:
        """The rows that are kept, :data:`KEPT_ROWS` at most; None where none were remembered."""
        return self._rows

    def remember(self, arrays: Sequence[Any]) -> None:
        """Keep rows of the first arrays that were asked about; later ones cost nothing."""
        if self._rows is not None:
            return
        rows = self._signature.arrays(arrays)
        lengths = {array.shape[0] if array.ndim else 0 for array in rows}
        if len(lengths) == 1 and (length := lengths.pop()) > 0:
            chosen = np.linspace(0, length - 1, min(length, KEPT_ROWS)).astype(np.int64)
            self._rows = tuple(array[chosen] for array in rows)

    def reference(self) -> Batch:
        """The :data:`REFERENCE_ROWS` rows that are handed over with the model."""
        rows = self._rows if self._rows is not None else _repeated(self._signature.example, self._invents)
        length = rows[0].shape[0]
        chosen = np.linspace(0, length - 1, REFERENCE_ROWS).astype(np.int64)
        return tuple(array[chosen] for array in rows)

    def batches(self) -> list[Batch]:
        """Batches of several sizes: the example, one row, the reference and all rows that are kept.

        Where axes beside the batch are free, one of other lengths as well.
        """
        reference = self.reference()
        batches = [self._signature.example, tuple(array[:1] for array in reference), reference]
        if self._rows is not None:
            batches.append(self._rows)
        if self._signature.free_axes:
            batches += [self._signature.resized(reference, factor) for factor in OTHER_LENGTHS]
        return batches

    def drawn(self) -> list[Drawn]:
        """Rows that nobody asked about, which differ from the real ones by sign and size.

        What a model decides by its numbers shows only where these differ. Whole numbers, such as ids of words, are left
        as they are: others may not exist.
        """
        rows = tuple(array[:DRAWN_ROWS] for array in (self._rows or self.reference()))
        if not any(_is_real(array) for array in rows):
            return []
        return [Drawn(difference, tuple(_changed(array, change) for array in rows)) for difference, change in _CHANGES]

    def not_varied(self) -> tuple[str, ...]:
        """Inputs that drawn rows leave as they are."""
        pairs = zip(self._signature.input_names, self._signature.example, strict=True)
        return tuple(name for name, array in pairs if not _is_real(array))


def _is_real(array: Array) -> bool:
    return np.issubdtype(array.dtype, np.floating)


def _repeated(example: Batch, invents: bool) -> Batch:
    """The reference rows made of an example: repeated, and where that is allowed with numbers that differ a little."""
    repeated = [array[np.arange(REFERENCE_ROWS) % array.shape[0]] for array in example]
    if not invents:
        return tuple(repeated)
    factors = 1 + 0.05 * np.arange(REFERENCE_ROWS)
    return tuple(
        array * factors.astype(array.dtype).reshape(-1, *[1] * (array.ndim - 1)) if _is_real(array) else array
        for array in repeated
    )


def _changed(array: Array, change: Callable[[Array], Array]) -> Array:
    return change(array).astype(array.dtype, copy=False) if _is_real(array) else array
