"""From a PyTorch model to an ONNX file that answers alike, or to the reason why there is none."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tiercel.trainer_agent.trainer.errors import ExportError
from tiercel.trainer_agent.trainer.samples import Batch, Samples
from tiercel.trainer_agent.trainer.signature import Signature, named_outputs
from tiercel.trainer_agent.trainer.verification import OnnxModel, check_same_answers, first_line

logger = logging.getLogger(__name__)

# The newest operator set that PyTorch's TorchScript exporter writes without conversions.
TORCHSCRIPT_OPSET = 17
BATCH_AXIS = "batch"

_NOISY_LOGGERS = ("torch.onnx", "torch.onnx._internal.exporter._registration", "torch.fx.experimental.symbolic_shapes")

_Exporter = Callable[[nn.Module, Batch, tuple[str, ...], tuple[str, ...], Path], None]


class _Flat(nn.Module):
    """The model with its outputs as a plain tuple, which is what exporters understand best."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs in order."""
        return tuple(named_outputs(self.model(*inputs)).values())


def export_model(model: nn.Module, signature: Signature, samples: Samples, path: Path) -> OnnxModel:
    """Write a single ONNX file with a free batch axis whose answers equal the model's.

    The TorchScript exporter comes first because it is 10 to 50 times faster than its successor and training waits
    meanwhile; what it writes is compared with PyTorch on several batch sizes, and where it fails or differs the
    successor has a try.

    Args:
        model: On the CPU and in evaluation mode.
        signature: Its inputs.
        samples: Rows to compare answers on.
        path: The file to write.

    Returns:
        The file, loaded in ONNX Runtime.

    Raises:
        ExportError: If no exporter writes a file that agrees with the model; says why, for each of them.
    """
    reference = samples.reference()
    try:
        with torch.no_grad():
            output_names = tuple(named_outputs(model(*reference)))
    except Exception as error:  # the script's own forward may raise anything
        message = f"the model does not answer a batch of {reference[0].shape[0]} rows: {first_line(error)}"
        raise ExportError(message) from error
    reasons = []
    for name, export in (("TorchScript exporter", _export_torchscript), ("dynamo exporter", _export_dynamo)):
        try:
            _run(export, model, reference, (signature.input_names, output_names), path)
            exported = OnnxModel(path, signature)
            check_same_answers(model, exported, samples.batches())
        except ExportError as error:
            logger.info("%s: %s", name, error)
            reasons.append(f"{name}: {error}")
        else:
            return exported
    raise ExportError("; ".join(reasons))


def _run(
    export: _Exporter, model: nn.Module, batch: Batch, names: tuple[tuple[str, ...], tuple[str, ...]], path: Path
) -> None:
    path.unlink(missing_ok=True)
    with _quiet():
        try:
            export(_Flat(model).eval(), batch, *names, path)
        except Exception as error:  # exporters raise dozens of types
            raise ExportError(first_line(_root_cause(error))) from error


def _root_cause(error: BaseException) -> BaseException:
    """What an exporter stumbled over; its own message is a page of advice on debugging PyTorch."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep out of the job's log what exporters print and warn of.

    Deprecation: the exporter is chosen on purpose, see :func:`export_model`, and its successor stands ready for the day
    it is gone. Tracing and batch sizes: what these warn of is exactly what the comparison of answers looks for.
    """
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


def _export_torchscript(
    model: nn.Module, batch: Batch, input_names: tuple[str, ...], output_names: tuple[str, ...], path: Path
) -> None:
    torch.onnx.export(
        model,
        batch,
        str(path),
        dynamo=False,
        opset_version=TORCHSCRIPT_OPSET,
        input_names=list(input_names),
        output_names=list(output_names),
        dynamic_axes={name: {0: BATCH_AXIS} for name in (*input_names, *output_names)},
    )


def _export_dynamo(
    model: nn.Module, batch: Batch, input_names: tuple[str, ...], output_names: tuple[str, ...], path: Path
) -> None:
    free_batch: dict[int, Any] = {0: torch.export.Dim(BATCH_AXIS)}
    torch.onnx.export(
        model,
        batch,
        str(path),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=list(input_names),
        output_names=list(output_names),
        # One parameter, *inputs, stands for all of them.
        dynamic_shapes=(tuple(free_batch for _ in batch),),
    )
