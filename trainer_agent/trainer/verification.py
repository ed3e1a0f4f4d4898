"""Whether ONNX Runtime answers with an exported model what PyTorch answers with the original."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tiercel.trainer_agent.trainer.errors import ExportError
from tiercel.trainer_agent.trainer.models import to_array
from tiercel.trainer_agent.trainer.samples import Batch
from tiercel.trainer_agent.trainer.signature import Array, Prediction, Signature, named_outputs, unpack

# An answer may differ from PyTorch's by ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * |PyTorch's answer|. The two order
# their float32 sums differently: healthy exports differ by about 1e-6, broken ones by far more than this.
RELATIVE_TOLERANCE = 1e-3
ABSOLUTE_TOLERANCE = 1e-4
# Of ONNX Runtime's log; what goes wrong is raised as well.
_ONLY_FATAL = 4
_TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class OnnxModel:
    """An ONNX file in ONNX Runtime, on the CPU.

    Args:
        path: The file; it is checked against the ONNX standard first.
        signature: Inputs of the model it was made from.

    Raises:
        ExportError: If the file is malformed or ONNX Runtime cannot load it.
    """

    def __init__(self, path: Path, signature: Signature) -> None:
        import onnx.checker  # costs a script 0.1 to 0.3 s, and only jobs that reach a tier need it
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = _ONLY_FATAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            onnx.checker.check_model(str(path), full_check=True)
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # both raise types of their own that are no public names
            message = f"the ONNX file is not valid: {first_line(error)}"
            raise ExportError(message) from error
        self._run_options = onnxruntime.RunOptions()
        self._run_options.log_severity_level = _ONLY_FATAL
        self._signature = signature
        self.output_names = tuple(str(output.name) for output in self._session.get_outputs())

    def predict(self, *arrays: Any) -> Prediction:
        """Ask the model: one array an input, one array or a tuple of them out."""
        return unpack(self.run(self._signature.tensors(arrays)))

    def run(self, tensors: Sequence[torch.Tensor]) -> list[Array]:
        """All outputs for one batch."""
        pairs = zip(self._signature.input_names, tensors, strict=True)
        # An input that the model ignores is no input of the file.
        known = {value.name for value in self._session.get_inputs()}
        feeds = {name: to_array(tensor) for name, tensor in pairs if name in known}
        answers: list[Array] = self._session.run(None, feeds, self._run_options)
        return answers


def answers_of(model: nn.Module, batch: Batch) -> dict[str, Array]:
    """What a model on the CPU and in evaluation mode answers, by output name."""
    with torch.no_grad():
        return {name: to_array(tensor) for name, tensor in named_outputs(model(*batch)).items()}


def check_same_answers(model: nn.Module, exported: OnnxModel, batches: Sequence[Batch]) -> None:
    """Compare the two on every batch.

    Args:
        model: The original, on the CPU and in evaluation mode.
        exported: What was made of it.
        batches: Of different sizes, so that a batch size which was frozen in the export shows.

    Raises:
        ExportError: If they differ by more than the tolerance; says where and by how much.
    """
    for batch in batches:
        expected = answers_of(model, batch)
        try:
            actual = exported.run(batch)
        except Exception as error:  # ONNX Runtime's exceptions share no public base
            message = f"ONNX Runtime fails on a batch of {batch[0].shape[0]}: {first_line(error)}"
            raise ExportError(message) from error
        for (name, wanted), got in zip(expected.items(), actual, strict=True):
            _check_same_array(name, wanted, got)


def _check_same_array(name: str, wanted: Array, got: Array) -> None:
    if wanted.shape != got.shape:
        message = f"ONNX Runtime returns the shape {got.shape} for {name} where PyTorch returns {wanted.shape}"
        raise ExportError(message)
    if np.allclose(got, wanted, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE, equal_nan=True):
        return
    difference = float(np.nanmax(np.abs(got.astype(np.float64) - wanted.astype(np.float64))))
    message = (
        f"ONNX Runtime and PyTorch disagree on {name} by up to {difference:.3g} for a batch of {wanted.shape[0]} "
        f"(allowed: {ABSOLUTE_TOLERANCE:g} + {RELATIVE_TOLERANCE:g} of the value)"
    )
    raise ExportError(message)


def first_line(error: BaseException, *, limit: int = 300) -> str:
    """The first line that an exception says, with its type; a tenant gets no page of stack."""
    lines = [line.strip() for line in _TERMINAL_COLOURS.sub("", str(error)).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
