"""Whether ONNX Runtime answers with an exported model what PyTorch answers with the original."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.models import to_array
from tiercel.trainer_agent.trainer.samples import Batch, Samples
from tiercel.trainer_agent.trainer.signature import Array, Prediction, Signature, unpack

# An answer may differ from PyTorch's by ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * |PyTorch's answer|. The two order
# their float32 sums differently: healthy exports differ by about 1e-6, broken ones by far more than this.
RELATIVE_TOLERANCE = 1e-3
ABSOLUTE_TOLERANCE = 1e-4
# Of answers that are whole numbers, such as classes: what may differ for made-up rows, which lie anywhere.
DRAWN_SHARE_DIFFERENT = 0.1
# Of ONNX Runtime's log; what goes wrong is raised as well.
_ONLY_FATAL = 4
_TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Compared:
    """What an exported model was compared on.

    Attributes:
        rows: How many.
        missed: What could not be compared, in words.
    """

    rows: int
    missed: tuple[str, ...]

    @property
    def summary(self) -> str:
        """For the job's log."""
        return f"compared on {self.rows} rows" + (f", not on {', '.join(self.missed)}" if self.missed else "")


class OnnxModel:
    """An ONNX file in ONNX Runtime, on the CPU.

    Args:
        path: The file; it is checked against the ONNX standard first.
        signature: Inputs of the model it was made from.

    Raises:
        DeliveryFailedError: If the file is malformed or ONNX Runtime cannot load it.
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
            raise DeliveryFailedError(message) from error
        self._run_options = onnxruntime.RunOptions()
        self._run_options.log_severity_level = _ONLY_FATAL
        self.signature = signature
        self.output_names = tuple(str(output.name) for output in self._session.get_outputs())

    def predict(self, *arrays: Any) -> Prediction:
        """Ask the model: one array an input, one array or a tuple of them out."""
        return unpack(self.run(self.signature.tensors(arrays)))

    def run(self, tensors: Sequence[torch.Tensor]) -> list[Array]:
        """All outputs for one batch."""
        pairs = zip(self.signature.input_names, tensors, strict=True)
        # An input that the model ignores is no input of the file.
        known = {value.name for value in self._session.get_inputs()}
        feeds = {name: to_array(tensor) for name, tensor in pairs if name in known}
        answers: list[Array] = self._session.run(None, feeds, self._run_options)
        return answers


def answers_of(model: nn.Module, signature: Signature, batch: Batch) -> dict[str, Array]:
    """What a model on the CPU and in evaluation mode answers, by output name."""
    with torch.no_grad():
        return {name: to_array(tensor) for name, tensor in signature.apply(model, batch).items()}


def check_same_answers(model: nn.Module, exported: OnnxModel, samples: Samples) -> Compared:
    """Compare the two on real rows in batches of several sizes, and on rows drawn to differ from those.

    Args:
        model: The original, on the CPU and in evaluation mode.
        exported: What was made of it.
        samples: The rows.

    Returns:
        What was compared, and what could not be.

    Raises:
        DeliveryFailedError: If they differ by more than the tolerance; says where and by how much.
    """
    rows, missed = 0, []
    for batch in samples.batches():
        expected = answers_of(model, exported.signature, batch)
        for name, wanted, got in _both(exported, batch, expected):
            _check_same_array(name, wanted, got)
        rows += batch[0].shape[0]
    for drawn in samples.drawn():
        try:
            expected = answers_of(model, exported.signature, drawn.batch)
        except Exception as error:  # a script's own forward may refuse what no application sends
            missed.append(f"rows {drawn.difference} ({first_line(error, limit=80)})")
            continue
        for name, wanted, got in _both(exported, drawn.batch, expected):
            _check_alike(name, wanted, got, drawn.difference)
        rows += drawn.batch[0].shape[0]
    missed += [f"other values of {name}" for name in samples.not_varied()]
    return Compared(rows, tuple(missed))


def _both(exported: OnnxModel, batch: Batch, expected: dict[str, Array]) -> list[tuple[str, Array, Array]]:
    try:
        actual = exported.run(batch)
    except Exception as error:  # ONNX Runtime's exceptions share no public base
        message = f"ONNX Runtime fails on a batch of {batch[0].shape[0]}: {first_line(error)}"
        raise DeliveryFailedError(message) from error
    return [(name, wanted, got) for (name, wanted), got in zip(expected.items(), actual, strict=True)]


def _check_alike(name: str, wanted: Array, got: Array, which: str) -> None:
    """Compare answers to made-up rows: near its limits a model rounds differently, but it takes the same way."""
    if wanted.shape != got.shape:
        _check_same_array(name, wanted, got)
    if not np.issubdtype(wanted.dtype, np.floating):
        differs = float(np.mean(wanted != got)) if wanted.size else 0.0
        if differs > DRAWN_SHARE_DIFFERENT:
            message = f"ONNX Runtime and PyTorch disagree on {name} for {differs:.0%} of the rows {which}"
            raise DeliveryFailedError(message)
        return
    finite = np.isfinite(wanted)
    largest = float(np.max(np.abs(wanted[finite]), initial=0.0))
    allowed = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * largest
    difference = float(np.max(np.abs(got[finite].astype(np.float64) - wanted[finite]), initial=0.0))
    if math.isnan(difference) or difference > allowed:
        message = (
            f"ONNX Runtime and PyTorch disagree on {name} by up to {difference:.3g} for rows {which} "
            f"(allowed: {allowed:.3g}); does the model decide by the numbers that it is given?"
        )
        raise DeliveryFailedError(message)


def _check_same_array(name: str, wanted: Array, got: Array) -> None:
    if wanted.shape != got.shape:
        message = f"ONNX Runtime returns the shape {got.shape} for {name} where PyTorch returns {wanted.shape}"
        raise DeliveryFailedError(message)
    if np.allclose(got, wanted, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE, equal_nan=True):
        return
    difference = float(np.nanmax(np.abs(got.astype(np.float64) - wanted.astype(np.float64))))
    message = (
        f"ONNX Runtime and PyTorch disagree on {name} by up to {difference:.3g} for a batch of {wanted.shape[0]} "
        f"(allowed: {ABSOLUTE_TOLERANCE:g} + {RELATIVE_TOLERANCE:g} of the value)"
    )
    raise DeliveryFailedError(message)


def first_line(error: BaseException, *, limit: int = 300) -> str:
    """The first line that an exception says, with its type; a tenant gets no page of stack."""
    lines = [line.strip() for line in _TERMINAL_COLOURS.sub("", str(error)).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
