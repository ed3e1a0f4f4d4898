"""Asking and copying a PyTorch model without leaving a trace in its training."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from tiercel.trainer_agent.trainer.pytorch.calling import apply, tensors_of
from tiercel.trainer_agent.trainer.signature import Array, Prediction, Signature, unpack

Weights = dict[str, Any]
LENGTH_AXIS = "length"


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def without_wrapper(model: nn.Module) -> nn.Module:
    """The model itself, of one that is wrapped to be trained by several ranks.

    To ask the wrapper is a matter of all ranks at once, and the names that it gives to weights are not those that a
    checkpoint from one process has.
    """
    inner: object = getattr(model, "_orig_mod", model)
    return inner.module if isinstance(inner, nn.parallel.DistributedDataParallel) else model


def check_is_whole(model: nn.Module) -> None:
    """Check that each rank has all of the model.

    Raises:
        TypeError: Its weights are spread over the ranks.
    """
    kinds = {type(each).__name__ for each in (*model.modules(), *model.parameters())}
    if kinds & {"FullyShardedDataParallel", "DTensor"}:
        message = (
            "the weights of the model are spread over the ranks, so that no rank could save or hand them over; "
            "wrap it in torch.nn.parallel.DistributedDataParallel"
        )
        raise TypeError(message)


def predict(model: nn.Module, signature: Signature, arrays: tuple[Any, ...]) -> Prediction:
    """Ask the model in evaluation mode, wherever it lives.

    Args:
        model: The model.
        signature: Its inputs.
        arrays: One array an input; they are cast to the example's types.

    Returns:
        One array, or a tuple of arrays when the model has several outputs.
    """
    parameter = next(model.parameters(), None)
    tensors = tensors_of(signature, arrays, parameter.device if parameter is not None else None)
    with evaluation_mode(model), torch.no_grad():
        outputs = apply(model, signature, tensors)
    return unpack([to_array(tensor) for tensor in outputs.values()])


def with_free_lengths(signature: Signature, model: nn.Module) -> Signature:
    """The signature with the second axis of its whole-number inputs free, where the model answers other lengths of it.

    Those are texts and the like; of images and measurements only the script knows which axes may differ. Nothing of the
    model or of its training changes.
    """
    pairs = list(zip(signature.input_names, signature.example, strict=True))
    texts = [name for name, array in pairs if array.ndim == 2 and not np.issubdtype(array.dtype, np.floating)]
    lengths = {array.shape[1] for name, array in pairs if name in texts}
    if not texts or len(lengths) != 1 or lengths == {1}:
        return signature
    free = replace(signature, free_axes={name: {1: LENGTH_AXIS} for name in texts})
    try:
        with preserved_random_state():
            for factor in (0.5, 1.7):
                predict(model, free, free.resized(free.example, factor))
    except Exception:  # the script's own forward may raise anything: then it takes one length only
        return signature
    return free


def to_array(tensor: torch.Tensor) -> Array:
    """A tensor as a NumPy array on the CPU."""
    array: Array = tensor.detach().cpu().numpy()
    return array


def copy_weights(model: nn.Module) -> Weights:
    """The model's state as it is now, on the CPU, sharing no memory with it."""
    return {
        name: value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else copy.deepcopy(value)
        for name, value in model.state_dict().items()
    }


def copy_model(model: nn.Module, weights: Weights) -> nn.Module:
    """A second model with the given weights, on the CPU and in evaluation mode.

    Compiled models and the ones wrapped for several devices are unwrapped. Working on a copy is what keeps an export
    from touching the training: not a gradient, mode, buffer or attribute of the original changes. It takes no memory
    of an accelerator, of which the training may have all that there is.
    """
    memo: dict[int, Any] = {}
    for module in model.modules():
        plain = [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False), *plain):
            _copy_to_cpu(tensor, memo)
    duplicate = copy.deepcopy(model, memo)
    duplicate.load_state_dict(weights)
    while isinstance(inner := getattr(duplicate, "_orig_mod", None) or _wrapped(duplicate), nn.Module):
        duplicate = inner
    return duplicate.cpu().eval()


def _copy_to_cpu(tensor: torch.Tensor, memo: dict[int, Any]) -> None:
    """Put a copy on the CPU where :func:`copy.deepcopy` looks for one; it would make its own on the tensor's device."""
    # Nor can it copy a result that the script keeps on a module, while that hangs in a graph.
    if type(tensor) is nn.Parameter:
        memo[id(tensor)] = nn.Parameter(tensor.detach().to("cpu", copy=True), tensor.requires_grad)
    elif type(tensor) is torch.Tensor:
        memo[id(tensor)] = tensor.detach().to("cpu", copy=True)


def _wrapped(model: nn.Module) -> nn.Module | None:
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    return model.module if isinstance(model, wrappers) else None


def random_state() -> dict[str, Any]:
    """State of the random generators of PyTorch, NumPy and Python, as tensors and plain values."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": (name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, cached),
        "python": random.getstate(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # PyTorch left it without annotations
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Put the random generators back to what :func:`random_state` returned."""
    torch.set_rng_state(state["torch"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])


@contextlib.contextmanager
def preserved_random_state() -> Iterator[None]:
    """Whatever draws random numbers inside, the generators are afterwards as they were before."""
    state = random_state()
    try:
        yield
    finally:
        restore_random_state(state)
