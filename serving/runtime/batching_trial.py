"""Runs of a model on rows that are made up, to find out what batching does to it. Blocking."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.random import Generator, default_rng

if TYPE_CHECKING:
    from tiercel.serving.tensors import Array, TensorSpec

MAX_ELEMENTS = 4 * 1024**2
"""Input elements of the largest batch that is tried."""
# Other sizes are computed by other kernels, which add up in another order.
_RELATIVE, _ABSOLUTE = 1e-2, 1e-4


class Model(Protocol):
    """What can be run; see :class:`~tiercel.serving.runtime.engine.Session`."""

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """What it takes, by name."""

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """What it gives, by name."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of its outputs."""

    @property
    def busy_clock(self) -> Callable[[], float]:
        """Counts the seconds that a run keeps its processor for, whatever else the machine does."""

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs of one run, in the order wanted."""


class BatchTrial:
    """A model and two rows for it.

    Args:
        session: The model, warm.
        shapes: Shapes by input that are known to work; others are made up.

    Attributes:
        session: The model.
        elements: Input elements of a row.
    """

    def __init__(self, session: Model, shapes: Mapping[str, Sequence[int]]) -> None:
        self.session = session
        self._shapes = {name: _row_shape(spec, shapes) for name, spec in session.inputs.items()}
        self.elements = sum(math.prod(shape) for shape in self._shapes.values())
        self._rows: tuple[dict[str, Array], dict[str, Array]] | None = None

    def most_rows(self, max_rows: int) -> int:
        """The largest batch that is tried where one of ``max_rows`` is of interest."""
        return max(1, min(max_rows, MAX_ELEMENTS // max(1, self.elements)))

    def why_not(self, max_rows: int) -> str:
        """Why rows must not run together, by what the model declares; empty where it says nothing against it."""
        session = self.session
        if max_rows <= 1:
            return "batches are switched off, or the time this model takes depends on values"
        if not session.inputs:
            return "the model has no inputs"
        for kind, specs in (("input", session.inputs), ("output", session.outputs)):
            for spec in specs.values():
                if not spec.shape or spec.shape[0] != -1:
                    return f"the first axis of {kind} '{spec.name}' is not free"
        return "a row is too large to try it" if self.elements > MAX_ELEMENTS else ""

    def why_mixed_up(self) -> str:
        """Why rows do not stay apart when they run together; empty if they do.

        Two different rows must give the same alone, together, and in another order.

        Raises:
            ServingError: It does not take the rows that were made up, or failed.
        """
        names = self.session.output_names
        both = self._both()
        alone = [self.session.run(names, row) for row in both]
        for order in ((0, 1), (1, 0, 0)):
            rows = [both[index] for index in order]
            together = self.session.run(names, {name: np.concatenate([row[name] for row in rows]) for name in both[0]})
            for position, name in enumerate(names):
                output = together[position]
                if not output.ndim or len(output) != len(order) or any(len(each[position]) != 1 for each in alone):
                    return f"output '{name}' has not a row for each row of the inputs"
                for place, index in enumerate(order):
                    if not _alike(output[place], alone[index][position][0]):
                        return f"a row of output '{name}' depends on the other rows of the batch"
        return ""

    def batch(self, rows: int) -> dict[str, Array]:
        """Inputs of so many rows, all of them the same."""
        return {name: np.repeat(value, rows, axis=0) for name, value in self._both()[0].items()}

    def seconds(self, batch: Mapping[str, Array]) -> float:
        """Seconds of one run by :attr:`.Model.busy_clock`.

        Raises:
            ServingError: The model failed.
        """
        clock = self.session.busy_clock
        begin = clock()
        self.session.run(self.session.output_names, batch)
        return clock() - begin

    def _both(self) -> tuple[dict[str, Array], dict[str, Array]]:
        if self._rows is None:
            random = default_rng(0)
            first, second = (_row(self.session.inputs, self._shapes, random) for _ in range(2))
            self._rows = first, second
        return self._rows


def _row_shape(spec: TensorSpec, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    known = tuple(shapes.get(spec.name) or (1 if size < 0 else size for size in spec.shape))
    return (1, *known[1:])


def _row(
    inputs: Mapping[str, TensorSpec], shapes: Mapping[str, tuple[int, ...]], random: Generator
) -> dict[str, Array]:
    """One row of every input: small numbers that most models can make sense of, indices among them."""
    row: dict[str, Array] = {}
    for name, spec in inputs.items():
        dtype = spec.data_type.dtype
        if dtype.kind == "f":
            row[name] = random.standard_normal(shapes[name]).astype(dtype)
        elif dtype.kind == "O":
            row[name] = np.array(random.choice(["a", "b"], shapes[name]).tolist(), np.object_)
        else:
            row[name] = random.integers(0, 2, shapes[name]).astype(dtype)
    return row


def _alike(one: Array, other: Array) -> bool:
    if np.shape(one) != np.shape(other):
        return False
    if np.asarray(one).dtype.kind == "f":
        scale = float(np.max(np.abs(other), initial=0.0, where=np.isfinite(other)))
        return bool(np.allclose(one, other, rtol=_RELATIVE, atol=_ABSOLUTE * max(scale, 1e-30), equal_nan=True))
    return bool(np.array_equal(one, other))
