"""How a PyTorch model is called: which arrays are which parameters, and what to call the tensors that it returns."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tiercel.trainer_agent.trainer.signature import Batch, DynamicAxes, Signature

Tensors = tuple[torch.Tensor, ...]


def fitted(signature: Signature, model: nn.Module, dynamic_axes: DynamicAxes | None = None) -> Signature:
    """The signature as this model takes it.

    A mapping's names that are parameters of ``forward`` are passed as such, whatever their order; names none of which
    is one are what the served model calls its inputs, in the order of the model's parameters.

    Args:
        signature: As the example has it.
        model: The model.
        dynamic_axes: Axes beside the batch whose size is free.

    Raises:
        ValueError: Some of the names are parameters and others are not, or an axis is none of an input.
    """
    taken = _parameters_of(model)
    matching = [name for name in signature.input_names if name in taken]
    strange = [name for name in signature.input_names if name not in taken]
    if matching and strange and signature.input_names != ("input",):
        message = (
            f"example_input has {', '.join(strange)}, which forward() of {type(model).__name__} does not take; "
            f"it takes {', '.join(taken)}"
        )
        raise ValueError(message)
    by_name = len(signature.input_names) > 1 and not strange
    return replace(signature, by_name=by_name, free_axes=_checked(dynamic_axes or {}, signature))


def apply(model: nn.Module, signature: Signature, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model's outputs by name."""
    if signature.by_name:
        return named_outputs(model(**dict(zip(signature.input_names, tensors, strict=True))))
    return named_outputs(model(*tensors))


def tensors_of(signature: Signature, arrays: Sequence[Any], device: torch.device | None = None) -> Tensors:
    """Arrays or tensors as tensors of the example's types.

    Raises:
        ValueError: If their number is not that of the model's inputs.
    """
    signature.check_count(arrays)
    return tuple(
        torch.as_tensor(array).to(device=device, dtype=like.dtype)
        for array, like in zip(arrays, as_tensors(signature.example), strict=True)
    )


def as_tensors(batch: Batch) -> Tensors:
    """A batch as tensors on the CPU, which share its memory."""
    return tuple(torch.from_numpy(array) for array in batch)


def named_outputs(result: object) -> dict[str, torch.Tensor]:
    """The tensors that a model returned, by name.

    What is nested is flattened: tensor 1 of ``{"states": (a, b)}`` is ``states_1``. What is None is left out, as models
    of Hugging Face return what they were not asked for.

    Args:
        result: What ``forward`` returned: a tensor (``output``), several of them (``output_0``, ``output_1``, ...), or
            a mapping from name to any of these, which a named tuple and a dataclass are as well.

    Raises:
        TypeError: If there is anything else in it, or no tensor.
    """
    found = list(_flat(result, ""))
    outputs = dict(found)
    if len(outputs) < len(found):
        raise TypeError(f"two of the model's tensors would be served by one name, of {', '.join(n for n, _ in found)}")
    if not outputs:
        raise TypeError(f"the model returned a {type(result).__name__} without a tensor in it, which cannot be served")
    return outputs


def _flat(value: object, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name or "output", value
    elif (fields := _fields_of(value)) is not None:
        for key, each in fields.items():
            if each is not None:
                yield from _flat(each, f"{name}_{key}" if name else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, each in enumerate(value):
            yield from _flat(each, f"{name or 'output'}_{index}" if len(value) > 1 else name)
    else:
        what = f"the model's {name} is" if name else "the model returned"
        message = f"{what} a {type(value).__name__}; tensors, and tuples and mappings of tensors, can be served"
        raise TypeError(message)


def _fields_of(value: object) -> Mapping[Any, object] | None:
    """What has names in it, by name."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


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
    dimensions = {name: array.ndim for name, array in zip(signature.input_names, signature.example, strict=True)}
    for name, named in axes.items():
        for axis in named:
            if name in dimensions and not 0 <= axis < dimensions[name]:
                message = f"dynamic_axes: {name} has the axes 0 to {dimensions[name] - 1}, and not {axis}"
                raise ValueError(message)
    if axes and not any(name in dimensions for name in axes):
        message = f"dynamic_axes names no input; there are {', '.join(signature.input_names)}"
        raise ValueError(message)
    return {name: {axis: label for axis, label in named.items() if axis > 0} for name, named in axes.items()}
