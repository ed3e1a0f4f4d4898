"""What goes into a model and what comes out: names, shapes and types, taken from one example.

The first axis of every input and of every output is the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiercel.trainer_agent.trainer.frames import in_parts, is_frame, numbers_of

Array = npt.NDArray[Any]
Batch = tuple[Array, ...]
Prediction = Array | tuple[Array, ...]
# Arrays in the order of the model's inputs in; one array out, or a tuple of them.
Predict = Callable[..., Any]
Evaluate = Callable[[Predict], float | Mapping[str, float]]
# An array, or what NumPy makes one of: a tensor of PyTorch, an array of JAX, a data frame.
ExampleValue = Any
ExampleInput = ExampleValue | Sequence[ExampleValue] | Mapping[str, ExampleValue]
# By input or output: names of axes whose size is free, by their index. Axes of the same name have the same size.
DynamicAxes = Mapping[str, Mapping[int, str]]
BATCH_AXIS = "batch"


@dataclass(frozen=True, slots=True)
class Signature:
    """Names and an example of a model's inputs."""

    input_names: tuple[str, ...]  # in the order in which the model takes them
    example: Batch  # one batch, in the same order
    by_name: bool = False  # whether the model takes them as keywords
    free_axes: DynamicAxes = field(default_factory=dict)  # of inputs and outputs, beside the batch

    @classmethod
    def from_example(cls, example_input: ExampleInput) -> Signature:
        """Read the signature off an example.

        Args:
            example_input: One batch: an array or tensor (its name is then ``input``), several of them in the order of
                the model's parameters (``input_0``, ``input_1``, ...), or a mapping from name to array, in that order.

        Raises:
            ValueError: If there is no input, or one without a batch axis.
        """
        if isinstance(example_input, Mapping):
            names, values = tuple(example_input.keys()), tuple(example_input.values())
        elif hasattr(example_input, "shape"):
            names, values = ("input",), (example_input,)
        else:
            values = tuple(example_input)
            names = tuple(f"input_{index}" for index in range(len(values))) if len(values) > 1 else ("input",)
        arrays = tuple(_example_array(value) for value in values)
        if not arrays or any(array.ndim == 0 or array.shape[0] == 0 for array in arrays):
            message = "example_input needs at least one array, and every array a first axis of at least one row"
            raise ValueError(message)
        return cls(names, arrays)

    def resized(self, arrays: Batch, factor: float) -> Batch:
        """The same rows with free axes longer or shorter by a factor: cut, or repeated from the beginning."""
        return tuple(
            _resized(array, self.free_axes.get(name, {}), factor)
            for name, array in zip(self.input_names, arrays, strict=True)
        )

    def arrays(self, values: Sequence[Any]) -> Batch:
        """Values as arrays of the example's types.

        Raises:
            ValueError: If their number is not that of the model's inputs.
        """
        values = in_parts(values, self.input_names)
        self.check_count(values)
        return tuple(_cast(as_array(value), like) for value, like in zip(values, self.example, strict=True))

    def check_count(self, values: Sequence[Any]) -> None:
        """Raise ValueError if there are not as many values as the model has inputs."""
        if len(values) != len(self.example):
            message = f"the model takes {len(self.example)} inputs ({', '.join(self.input_names)}), got {len(values)}"
            raise ValueError(message)


def as_array(value: Any) -> Array:
    """What a framework has as an array of NumPy; it may share memory with it."""
    if hasattr(value, "detach"):  # a tensor of PyTorch, wherever it lives
        value = value.detach().cpu()
    if is_frame(value):
        value = numbers_of(value)
    array: Array = np.asarray(value)
    # Texts are objects here and there, and a file without pickles holds none.
    return array.astype(np.str_) if array.dtype.kind == "O" else array


def unpack(arrays: Sequence[Array]) -> Prediction:
    """One array as it is, several as a tuple."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _example_array(value: Any) -> Array:
    try:
        array = as_array(value)
    except TypeError as error:
        message = f"example_input: NumPy has no arrays of this kind ({error}); give float32, and convert in the model"
        raise ValueError(message) from error
    plain = not hasattr(value, "dtype") and array.dtype == np.float64  # lists of numbers
    return np.array(array, dtype=np.float32 if plain else array.dtype, copy=True)


def _cast(array: Array, like: Array) -> Array:
    # Texts are as long as they are: the example's are no measure.
    return array if like.dtype.kind == array.dtype.kind == "U" else array.astype(like.dtype, copy=False)


def _resized(array: Array, axes: Mapping[int, str], factor: float) -> Array:
    for axis in axes:
        size = array.shape[axis]
        array = array.take(np.arange(max(1, round(size * factor))) % size, axis)
    return array
