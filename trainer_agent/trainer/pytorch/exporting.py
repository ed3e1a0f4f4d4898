"""From a PyTorch model to an ONNX file that answers alike, or to the reason why there is none."""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.jit._trace import TracerWarning

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer import verification
from tiercel.trainer_agent.trainer.pytorch.calling import Tensors, apply, as_tensors
from tiercel.trainer_agent.trainer.pytorch.models import to_array
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import BATCH_AXIS, Batch, Signature
from tiercel.trainer_agent.trainer.verification import Answers, Compared, OnnxModel, first_line

logger = logging.getLogger(__name__)

# The newest operator set that PyTorch's TorchScript exporter writes without conversions.
TORCHSCRIPT_OPSET = 17

_STANDARD_OUTPUT = 1
_GRAPH_BEGINS = b"Torch IR graph at exception"

_BY_CHANCE = (
    "the model answers the same rows otherwise each time it is asked, so that no file can answer as it does: leave"
    " out what is random in evaluation mode, such as noise or functional.dropout without training=self.training"
)

_NOISY_LOGGERS = ("torch.onnx", "torch.onnx._internal.exporter._registration", "torch.fx.experimental.symbolic_shapes")

_Exporter = Callable[["_Flat", Tensors, tuple[str, ...], Path], None]


class _Flat(nn.Module):
    """The model with its outputs as a plain tuple, which is what exporters understand best."""

    def __init__(self, model: nn.Module, signature: Signature) -> None:
        super().__init__()
        self.model = model
        self.signature = signature

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs in order."""
        return tuple(apply(self.model, self.signature, inputs).values())


@dataclass(frozen=True, slots=True)
class Exported:
    """An ONNX file that answers as the model does."""

    model: OnnxModel  # the file, loaded in ONNX Runtime
    compared: Compared  # on what


def export_model(model: nn.Module, signature: Signature, samples: Samples, path: Path) -> Exported:
    """Write a single ONNX file with a free batch axis whose answers equal the model's.

    The TorchScript exporter comes first because it is 10 to 50 times faster than its successor and training waits
    meanwhile. It runs the model once and writes down what it saw, so that a model which decides by its numbers would
    lose all ways but one: where it warns of that, where it fails, and where what it wrote answers otherwise than
    PyTorch, its successor has a try, which reads the program itself.

    Args:
        model: On the CPU and in evaluation mode.
        signature: Its inputs.
        samples: Rows to compare answers on.
        path: The file to write.

    Returns:
        The file, and what it was compared on.

    Raises:
        DeliveryFailedError: If no exporter writes a file that agrees with the model; says why, for each of them.
    """
    reference = as_tensors(samples.reference())
    try:
        with torch.no_grad():
            output_names = tuple(apply(model, signature, reference))
    except Exception as error:  # the script's own forward may raise anything
        message = f"the model does not answer a batch of {reference[0].shape[0]} rows: {first_line(error)}"
        raise DeliveryFailedError(message) from error
    reasons = []
    for name, export in (("TorchScript exporter", _export_torchscript), ("dynamo exporter", _export_dynamo)):
        try:
            _run(export, _Flat(model, signature).eval(), reference, output_names, path)
            exported = OnnxModel(path, torch.get_num_threads(), signature.input_names)
            compared = check_same_answers(model, signature, exported, samples)
        except DeliveryFailedError as error:
            if _answers_by_chance(model, signature, samples.reference()):
                raise DeliveryFailedError(_BY_CHANCE) from error
            logger.info("%s: %s", name, error)
            reasons.append(f"{name}: {error}")
        else:
            return Exported(exported, compared)
    raise DeliveryFailedError("; ".join(reasons))


def _answers_by_chance(model: nn.Module, signature: Signature, batch: Batch) -> bool:
    """Whether a model answers the same question otherwise when it is asked again."""
    first, again = (answers_of(model, signature, batch) for _ in range(2))
    return not all(name in again and verification.alike(first[name], again[name]) for name in first)


def answers_of(model: nn.Module, signature: Signature, batch: Batch) -> Answers:
    """What a model on the CPU and in evaluation mode answers, by output name."""
    with torch.no_grad():
        return {name: to_array(tensor) for name, tensor in apply(model, signature, as_tensors(batch)).items()}


def check_same_answers(model: nn.Module, signature: Signature, exported: OnnxModel, samples: Samples) -> Compared:
    """Compare the two; see :func:`~tiercel.trainer_agent.trainer.verification.check_same_answers`."""
    asked = verification.ask(samples, lambda batch: answers_of(model, signature, batch))
    missed = [f"other values of {name}" for name in samples.not_varied()]
    return verification.check_same_answers(asked, exported, "PyTorch", missed)


def _run(export: _Exporter, model: _Flat, batch: Tensors, output_names: tuple[str, ...], path: Path) -> None:
    path.unlink(missing_ok=True)
    with quietly():
        try:
            export(model, batch, output_names, path)
        except DeliveryFailedError:
            raise
        except Exception as error:  # exporters raise dozens of types
            raise DeliveryFailedError(first_line(_root_cause(error))) from error


def _root_cause(error: BaseException) -> BaseException:
    """What an exporter stumbled over; its own message is a page of advice on debugging PyTorch."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep out of the job's log what exporters print, and warn of."""
    with _quiet(), _without_graphs():
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep out of the job's log what exporters print and warn of."""
    # Deprecation: the exporter is chosen on purpose, see export_model(), and its successor stands ready for the day it
    # is gone. Batch sizes: what these warn of is exactly what the comparison of answers looks for.
    loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    levels = [noisy.level for noisy in loggers]
    for noisy in loggers:
        noisy.setLevel(logging.CRITICAL)
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            warnings.simplefilter("ignore")
            yield
    finally:
        for noisy, level in zip(loggers, levels, strict=True):
            noisy.setLevel(level)
        logger.debug("an exporter printed: %s", printed.getvalue())


@contextlib.contextmanager
def _without_graphs() -> Iterator[None]:
    """Keep out of the job's log the whole graph that PyTorch prints for an operator that it does not know."""
    sys.stdout.flush()  # it is written past Python; what else comes by this way meanwhile is passed on afterwards
    library = ctypes.CDLL(None)
    library.fflush(None)
    kept = os.dup(_STANDARD_OUTPUT)
    try:
        with tempfile.TemporaryFile() as written:
            os.dup2(written.fileno(), _STANDARD_OUTPUT)
            try:
                yield
            finally:
                library.fflush(None)
                os.dup2(kept, _STANDARD_OUTPUT)
                written.seek(0)
                os.write(_STANDARD_OUTPUT, written.read().partition(_GRAPH_BEGINS)[0])
    finally:
        os.close(kept)


def _export_torchscript(model: _Flat, batch: Tensors, output_names: tuple[str, ...], path: Path) -> None:
    signature = model.signature
    names = (*signature.input_names, *output_names)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TracerWarning)
        torch.onnx.export(
            model,
            batch,
            str(path),
            dynamo=False,
            opset_version=TORCHSCRIPT_OPSET,
            input_names=list(signature.input_names),
            output_names=list(output_names),
            dynamic_axes={name: {**signature.free_axes.get(name, {}), 0: BATCH_AXIS} for name in names},
        )
    for warning in caught:
        # PyTorch's own layers ask for sizes only, and ask a great deal.
        own = Path(warning.filename).is_relative_to(Path(torch.__file__).parent)
        if issubclass(warning.category, TracerWarning) and not own:
            where = f"{Path(warning.filename).name}:{warning.lineno}"
            message = f"the model may decide by the numbers it is given, and tracing keeps one way only ({where})"
            raise DeliveryFailedError(message)


def _export_dynamo(model: _Flat, batch: Tensors, output_names: tuple[str, ...], path: Path) -> None:
    signature = model.signature
    free = tuple({**signature.free_axes.get(name, {}), 0: BATCH_AXIS} for name in signature.input_names)
    torch.onnx.export(
        model,
        batch,
        str(path),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=list(signature.input_names),
        output_names=list(output_names),
        # One parameter, *inputs, stands for all of them.
        dynamic_shapes=(free,),
    )
