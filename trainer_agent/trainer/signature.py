"""What goes into a model and what comes out: names, shapes and types, taken from one example.

The first axis of every input and of every output is the batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Array = npt.NDArray[Any]
Prediction = Array | tuple[Array, ...]
# Arrays in the order of the model's inputs in; one array out, or a tuple of them.
Predict = Callable[..., Any]
Evaluate = Callable[[Predict], float | Mapping[str, float]]
ExampleValue = torch.Tensor | Array
ExampleInput = ExampleValue | Sequence[ExampleValue] | Mapping[str, ExampleValue]
# By input or output: names of axes whose size is free, by their index. Axes of the same name have the same size.
DynamicAxes = Mapping[str, Mapping[int, str]]
BATCH_AXIS = "batch"


@dataclass(frozen=True, slots=True)
class Signature:
    """Names and an example of a model's inputs.

    Attributes:
        input_names: In the order in which the model takes them.
        example: One batch, on the CPU, in the same order.
        by_name: Whether the model takes them as keywords.
        free_axes: Of inputs and outputs, beside the batch.
    """

    input_names: tuple[str, ...]
    example: tuple[torch.Tensor, ...]
    by_name: bool = False
    free_axes: DynamicAxes = field(default_factory=dict)

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
        elif isinstance(example_input, torch.Tensor | np.ndarray):
            names, values = ("input",), (example_input,)
        else:
            values = tuple(example_input)
            names = tuple(f"input_{index}" for index in range(len(values))) if len(values) > 1 else ("input",)
        tensors = tuple(torch.as_tensor(value).detach().to("cpu", copy=True) for value in values)
        if not tensors or any(tensor.ndim == 0 or tensor.shape[0] == 0 for tensor in tensors):
            message = "example_input needs at least one array, and every array a first axis of at least one row"
            raise ValueError(message)
        return cls(names, tensors)

    def fitted(self, model: nn.Module, dynamic_axes: DynamicAxes | None = None) -> Signature:
        """The signature as this model takes it.

        A mapping's names that are parameters of ``forward`` are passed as such, whatever their order; names none of
        which is one are what the served model calls its inputs, in the order of the model's parameters.

        Args:
            model: The model.
            dynamic_axes: Axes beside the batch whose size is free.

        Raises:
            ValueError: Some of the names are parameters and others are not, or an axis is none of an input.
        """
        taken = _parameters_of(model)
        matching = [name for name in self.input_names if name in taken]
        strange = [name for name in self.input_names if name not in taken]
        if matching and strange and self.input_names != ("input",):
            message = (
                f"example_input has {', '.join(strange)}, which forward() of {type(model).__name__} does not take; "
                f"it takes {', '.join(taken)}"
            )
            raise ValueError(message)
        by_name = len(self.input_names) > 1 and not strange
        return replace(self, by_name=by_name, free_axes=_checked(dynamic_axes or {}, self))

    def apply(self, model: nn.Module, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The model's outputs by name."""
        if self.by_name:
            return named_outputs(model(**dict(zip(self.input_names, tensors, strict=True))))
        return named_outputs(model(*tensors))

    def resized(self, tensors: Sequence[torch.Tensor], factor: float) -> tuple[torch.Tensor, ...]:
        """The same rows with free axes longer or shorter by a factor: cut, or repeated from the beginning."""
        return tuple(
            _resized(tensor, self.free_axes.get(name, {}), factor)
            for name, tensor in zip(self.input_names, tensors, strict=True)
        )

    def tensors(self, arrays: Sequence[Any], device: torch.device | None = None) -> tuple[torch.Tensor, ...]:
        """Arrays as tensors of the example's types.

        Raises:
            ValueError: If the number of arrays is not that of the model's inputs.
        """
        if len(arrays) != len(self.example):
            message = f"the model takes {len(self.example)} inputs ({', '.join(self.input_names)}), got {len(arrays)}"
            raise ValueError(message)
        return tuple(
            torch.as_tensor(array).to(device=device, dtype=like.dtype)
            for array, like in zip(arrays, self.example, strict=True)
        )


def named_outputs(result: object) -> dict[str, torch.Tensor]:
    """The tensors that a model returned, by name.

    Args:
        result: What ``forward`` returned: a tensor (``output``), several of them (``output_0``, ``output_1``, ...), or
            a mapping from name to tensor.

    Raises:
        TypeError: If it is anything else.
    """
    if isinstance(result, torch.Tensor):
        return {"output": result}
    if isinstance(result, Mapping):
        outputs = {str(name): value for name, value in result.items()}
    elif isinstance(result, Sequence) and not isinstance(result, str):
        outputs = {f"output_{index}" if len(result) > 1 else "output": value for index, value in enumerate(result)}
    else:
        message = (
            f"the model returned a {type(result).__name__}; a tensor, a tuple or a mapping of tensors can be served"
        )
        raise TypeError(message)
    for name, value in outputs.items():
        if not isinstance(value, torch.Tensor):
            message = f"the model's {name} is a {type(value).__name__}; only tensors can be served"
            raise TypeError(message)
    return outputs


def unpack(arrays: Sequence[Array]) -> Prediction:
    """One array as it is, several as a tuple."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _parameters_of(model: nn.Module) -> tuple[str, ...]:
    """Names of what ``forward`` takes, empty where that cannot be told."""
    try:
        found = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(parameter.name for parameter in found if parameter.kind in named)


def _checked(axes: DynamicAxes, signature: Signature) -> DynamicAxes:
    """The axes, without those of the batch; raises ValueError for one that the example does not have."""
    dimensions = {name: tensor.ndim for name, tensor in zip(signature.input_names, signature.example, strict=True)}
    for name, named in axes.items():
        for axis in named:
            if name in dimensions and not 0 <= axis < dimensions[name]:
                message = f"dynamic_axes: {name} has the axes 0 to {dimensions[name] - 1}, and not {axis}"
                raise ValueError(message)
    if axes and not any(name in dimensions for name in axes):
        message = f"dynamic_axes names no input; there are {', '.join(signature.input_names)}"
        raise ValueError(message)
    return {name: {axis: label for axis, label in named.items() if axis > 0} for name, named in axes.items()}


def _resized(tensor: torch.Tensor, axes: Mapping[int, str], factor: float) -> torch.Tensor:
    for axis in axes:
        size = tensor.shape[axis]
        wanted = max(1, round(size * factor))
        tensor = tensor.index_select(axis, torch.arange(wanted) % size)
    return tensor
