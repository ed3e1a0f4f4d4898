"""What goes into a model and what comes out: names, shapes and types, taken from one example.

The first axis of every input and of every output is the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]
Prediction = Array | tuple[Array, ...]
# Arrays in the order of the model's inputs in; one array out, or a tuple of them.
Predict = Callable[..., Any]
Evaluate = Callable[[Predict], float | Mapping[str, float]]
ExampleValue = torch.Tensor | Array
ExampleInput = ExampleValue | Sequence[ExampleValue] | Mapping[str, ExampleValue]


@dataclass(frozen=True, slots=True)
class Signature:
    """Names and an example of a model's inputs.

    Attributes:
        input_names: In the order in which the model takes them.
        example: One batch, on the CPU, in the same order.
    """

    input_names: tuple[str, ...]
    example: tuple[torch.Tensor, ...]

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
