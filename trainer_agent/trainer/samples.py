"""Rows on which an exported model has to agree with the original: some that it was really asked about, some made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tiercel.trainer_agent.trainer.signature import Signature

# An odd number that no example has: an export that froze the batch size shows itself.
REFERENCE_ROWS = 7
# Enough to meet rare branches, few enough to cost next to nothing.
KEPT_ROWS = 128
# Of these, so many are drawn again with other signs and sizes.
DRAWN_ROWS = 32

# Of the example's, on axes that are free beside the batch.
OTHER_LENGTHS = (0.5, 1.7)

Batch = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows that were made up.

    Attributes:
        difference: How they differ from real ones.
        batch: The rows.
    """

    difference: str
    batch: Batch


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor - 2 * tensor.abs().mean()


_CHANGES: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("of the other sign", torch.neg),
    ("ten times as large", lambda tensor: 10 * tensor),
    ("a hundredth as large", lambda tensor: 0.01 * tensor),
    ("shifted below zero", _shifted),
    ("zero", torch.zeros_like),
)


class Samples:
    """Keeps some of the rows that the script evaluates on, since real rows find what made-up ones do not.

    Args:
        signature: The model's inputs.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._rows: Batch | None = None

    @property
    def has_rows(self) -> bool:
        """Whether any rows were remembered."""
        return self._rows is not None

    def remember(self, arrays: Sequence[Any]) -> None:
        """Keep rows of the first arrays that were asked about; later ones cost nothing."""
        if self._rows is not None:
            return
        tensors = self._signature.tensors(arrays)
        lengths = {tensor.shape[0] if tensor.ndim else 0 for tensor in tensors}
        if len(lengths) == 1 and (length := lengths.pop()) > 0:
            chosen = torch.from_numpy(np.linspace(0, length - 1, min(length, KEPT_ROWS)).astype(np.int64))
            self._rows = tuple(tensor[chosen.to(tensor.device)].to("cpu", copy=True) for tensor in tensors)

    def reference(self) -> Batch:
        """The :data:`REFERENCE_ROWS` rows that are handed over with the model."""
        rows = self._rows if self._rows is not None else _varied(self._signature.example)
        length = rows[0].shape[0]
        chosen = torch.from_numpy(np.linspace(0, length - 1, REFERENCE_ROWS).astype(np.int64))
        return tuple(tensor[chosen] for tensor in rows)

    def batches(self) -> list[Batch]:
        """Batches of several sizes: the example, one row, the reference and all rows that are kept.

        Where axes beside the batch are free, one of other lengths as well.
        """
        reference = self.reference()
        batches = [self._signature.example, tuple(tensor[:1] for tensor in reference), reference]
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
        rows = tuple(tensor[:DRAWN_ROWS] for tensor in (self._rows or self.reference()))
        if not any(tensor.is_floating_point() for tensor in rows):
            return []
        return [
            Drawn(difference, tuple(_changed(tensor, change) for tensor in rows)) for difference, change in _CHANGES
        ]

    def not_varied(self) -> tuple[str, ...]:
        """Inputs that drawn rows leave as they are."""
        pairs = zip(self._signature.input_names, self._signature.example, strict=True)
        return tuple(name for name, tensor in pairs if not tensor.is_floating_point())


def _varied(example: Batch) -> Batch:
    """The reference rows made of an example: repeated, with numbers that differ a little where they may."""
    repeated = [tensor[torch.from_numpy(np.arange(REFERENCE_ROWS) % tensor.shape[0])] for tensor in example]
    factors = torch.from_numpy(1 + 0.05 * np.arange(REFERENCE_ROWS))
    return tuple(
        tensor * factors.to(tensor.dtype).reshape(-1, *[1] * (tensor.ndim - 1))
        if tensor.is_floating_point()
        else tensor
        for tensor in repeated
    )


def _changed(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return change(tensor) if tensor.is_floating_point() else tensor
