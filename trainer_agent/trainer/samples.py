"""Rows on which an exported model has to agree with the original."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tiercel.trainer_agent.trainer.signature import Signature

# An odd number that no example has: an export that froze the batch size shows itself.
REFERENCE_ROWS = 7
# Enough to meet rare branches, few enough to cost next to nothing.
KEPT_ROWS = 128

Batch = tuple[torch.Tensor, ...]


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
        """Batches of several sizes: the example, one row, the reference and all rows that are kept."""
        reference = self.reference()
        batches = [self._signature.example, tuple(tensor[:1] for tensor in reference), reference]
        return batches if self._rows is None else [*batches, self._rows]


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
