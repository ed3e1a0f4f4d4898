"""A model of PyTorch in training."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.checkpoints import State
from tiercel.trainer_agent.trainer.pytorch.calling import fitted
from tiercel.trainer_agent.trainer.pytorch.checkpoint_format import PyTorchFormat
from tiercel.trainer_agent.trainer.pytorch.exporting import answers_of, check_same_answers, export_model
from tiercel.trainer_agent.trainer.pytorch.models import (
    Weights,
    check_is_whole,
    copy_model,
    copy_weights,
    predict,
    preserved_random_state,
    random_state,
    restore_random_state,
    with_free_lengths,
    without_wrapper,
)
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import (
    Array,
    Batch,
    DynamicAxes,
    ExampleInput,
    Predict,
    Prediction,
    Signature,
)
from tiercel.trainer_agent.trainer.trained import Exported, Trained
from tiercel.trainer_agent.trainer.verification import Compared, OnnxModel, first_line


class Stateful(Protocol):
    """An optimizer, a learning-rate scheduler, or whatever else has a state to keep."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as tensors and plain values."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""


class PyTorchModel(Trained):
    """A PyTorch module, with what trains it."""

    checkpoint_format = PyTorchFormat()
    has_model = True

    def __init__(
        self,
        model: nn.Module,
        signature: Signature,
        optimizer: Stateful | None = None,
        scheduler: Stateful | None = None,
    ) -> None:
        self._model, self._signature, self._samples = model, signature, Samples(signature)
        self._others = {
            name: other for name, other in (("optimizer", optimizer), ("scheduler", scheduler)) if other is not None
        }

    def predict(self, arrays: tuple[Any, ...]) -> Prediction:
        """In evaluation mode and without gradients; its mode is the same afterwards."""
        self._samples.remember(arrays)
        return predict(self._model, self._signature, arrays)

    def keep(self) -> Weights:
        """The weights."""
        return copy_weights(self._model)

    def export(self, copy: Weights, path: Path) -> Exported:
        """See :class:`Trained`; the training is afterwards as it was before."""
        try:
            model = copy_model(self._model, copy)
        except Exception as error:  # the script's own classes may raise anything when copied
            message = f"the model cannot be copied, which handing it over begins with: {first_line(error)}"
            raise DeliveryFailedError(message) from error
        return _ExportedModel(model, self._signature, self._samples, path)

    def preserved_random_state(self) -> AbstractContextManager[None]:
        """Of PyTorch, NumPy and Python."""
        return preserved_random_state()

    def state(self, other_ranks: Mapping[int, bytes]) -> State:
        """The weights, what trains them, and the random generators."""
        return {
            "model": self._model.state_dict(),
            **{name: other.state_dict() for name, other in self._others.items()},
            "random": random_state(),
            "ranks": {number: _as_tensor(each) for number, each in other_ranks.items()},
        }

    def restore(self, state: State, rank: int) -> None:
        """See :class:`Trained`."""
        self._model.load_state_dict(state["model"])
        for name, other in self._others.items():
            other.load_state_dict(state[name])
        if rank == 0:
            restore_random_state(state["random"])
        elif (own := state.get("ranks", {}).get(rank)) is not None:  # else it goes on as the script began
            restore_random_state(torch.load(io.BytesIO(own.numpy().tobytes()), weights_only=True))

    def restore_model(self, state: State) -> None:
        """See :class:`Trained`."""
        self._model.load_state_dict(state["model"])

    def use_threads(self, count: int) -> None:
        """PyTorch's own."""
        torch.set_num_threads(count)


class _ExportedModel(Exported):
    def __init__(self, model: nn.Module, signature: Signature, samples: Samples, path: Path) -> None:
        self._model, self._signature, self._samples = model, signature, samples
        self._had_rows = samples.has_rows
        exported = export_model(model, signature, samples, path)
        self._onnx: OnnxModel = exported.model
        self._compared = exported.compared

    @property
    def model(self) -> OnnxModel:
        """See :class:`Exported`."""
        return self._onnx

    def predict_with(self, model: OnnxModel) -> Predict:
        """Casts what it is given as the model's own does."""

        def ask_file(*arrays: Any) -> Prediction:
            self._samples.remember(arrays)
            return model.predict(*self._signature.arrays(arrays))

        return ask_file

    @property
    def rows(self) -> Batch | None:
        """See :class:`Exported`."""
        return self._samples.rows

    def compared(self) -> Compared:
        """A script that measures without job.predict shows its rows only when it measures the file."""
        if self._had_rows or not self._samples.has_rows:
            return self._compared
        return check_same_answers(self._model, self._signature, self._onnx, self._samples)

    def reference(self) -> dict[str, Array]:
        """See :class:`Exported`."""
        rows = self._samples.reference()
        inputs = {f"input_{name}": array for name, array in zip(self._signature.input_names, rows, strict=True)}
        answers = answers_of(self._model, self._signature, rows)
        return {**inputs, **{f"output_{name}": array for name, array in answers.items()}}


def pytorch_model(
    model: nn.Module,
    example_input: ExampleInput,
    optimizer: Stateful | None,
    scheduler: Stateful | None,
    dynamic_axes: DynamicAxes | None,
    *,
    is_alone: bool,
) -> PyTorchModel:
    """What a script trains, as :func:`tiercel.trainer.connect` is told.

    Raises:
        TypeError: Its weights are spread over several ranks, of which this is one (``is_alone`` is False).
        ValueError: ``example_input`` or ``dynamic_axes`` does not fit the model.
    """
    model = without_wrapper(model)
    if not is_alone:
        check_is_whole(model)
    signature = fitted(Signature.from_example(example_input), model, dynamic_axes)
    if dynamic_axes is None:
        signature = with_free_lengths(signature, model)
    return PyTorchModel(model, signature, optimizer, scheduler)


def _as_tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
