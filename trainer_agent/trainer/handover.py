"""Answering the agent's request for a model: export, check, measure again, put the files in place."""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError
from tiercel.trainer_agent.trainer.exporting import export_model
from tiercel.trainer_agent.trainer.models import Weights, copy_model, preserved_random_state
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import Evaluate, Predict, Prediction, Signature
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.verification import (
    Compared,
    OnnxModel,
    answers_of,
    check_same_answers,
    first_line,
)
from tiercel.v1 import trainer_pb2

logger = logging.getLogger(__name__)

MODEL_FILE = "model.onnx"
REFERENCE_FILE = "reference.npz"
# By how much the re-measured metric may miss a target that the report had reached, as a fraction of the target: the
# two engines round differently.
METRIC_RELATIVE_TOLERANCE = 1e-4


class Handover:
    """CpuPriority weights into the files of a delivery.

    Args:
        model: The model in training; only ever copied.
        signature: Its inputs.
        samples: Rows to compare answers on.
        evaluate: The script's own measurement.
        metric: Name of the metric that the tiers are about.
        exports: Folder of the run in which each delivery gets a folder of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        signature: Signature,
        samples: Samples,
        evaluate: Evaluate,
        *,
        metric: str,
        exports: Path,
    ) -> None:
        self._model, self._signature, self._samples, self._evaluate = model, signature, samples, evaluate
        self._metric, self._exports = metric, exports

    def hand_over(
        self, request: trainer_pb2.ExportRequest, weights: Weights, tiers: TierTracker
    ) -> trainer_pb2.ExportDone:
        """Export the weights and measure them again; the training is afterwards as it was before.

        Never raises for a model that cannot be handed over: the answer then says why.
        """
        started = time.monotonic()
        scratch = self._exports / f".{request.delivery_id}.part"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(parents=True)
            with preserved_random_state():
                value, compared = self._export(scratch, weights)
            self._check_value(value, request.target, tiers)
            digest = _sha256(scratch / MODEL_FILE)
            self._put_in_place(scratch, request.delivery_id)
        except DeliveryFailedError as error:
            return _failure(request, str(error), falls_short=isinstance(error, FallsShortError))
        except OSError as error:
            return _failure(request, f"the files of the model could not be written: {error}")
        except Exception as error:  # training goes on whatever happens to an export; the agent and the log hear of it
            logger.exception("%s: handing the model over failed", request.delivery_id)
            return _failure(request, f"handing the model over failed: {first_line(error)}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        took = time.monotonic() - started
        message = f"handed over {request.delivery_id}: {self._metric}={value:.6g} in {took:.2f} s, {compared.summary}"
        print(message, flush=True)
        return trainer_pb2.ExportDone(delivery_id=request.delivery_id, value=value, sha256=digest)

    def _export(self, folder: Path, weights: Weights) -> tuple[float, Compared]:
        try:
            model = copy_model(self._model, weights)
        except Exception as error:  # the script's own classes may raise anything when copied
            message = f"the model cannot be copied, which handing it over begins with: {first_line(error)}"
            raise DeliveryFailedError(message) from error
        compared_real_rows = self._samples.has_rows
        try:
            exported = export_model(model, self._signature, self._samples, folder / MODEL_FILE)
            compared = exported.compared
            value = self._measure(exported.model)
            if not compared_real_rows:  # a script that measures without job.predict shows its rows only now
                compared = check_same_answers(model, exported.model, self._samples)
        except DeliveryFailedError as error:
            message = f"the model cannot be handed over as ONNX. {error}"
            raise DeliveryFailedError(message) from error
        reference = self._samples.reference()
        inputs = {f"input_{n}": t.numpy() for n, t in zip(self._signature.input_names, reference, strict=True)}
        outputs = {f"output_{name}": array for name, array in answers_of(model, self._signature, reference).items()}
        np.savez(folder / REFERENCE_FILE, allow_pickle=False, **inputs, **outputs)
        return value, compared

    def _measure(self, exported: OnnxModel) -> float:
        def predict(*arrays: Any) -> Prediction:
            self._samples.remember(arrays)
            return exported.predict(*arrays)

        try:
            return measure(self._evaluate, predict, self._metric)
        except Exception as error:  # evaluate is the script's and may raise anything
            message = f"evaluate() fails on the exported model: {first_line(error)}"
            raise DeliveryFailedError(message) from error

    def _check_value(self, value: float, target: float, tiers: TierTracker) -> None:
        if not math.isfinite(value):
            message = (
                f"the exported model was measured again and has {self._metric}={value:g}; "
                "evaluate() must return a finite number"
            )
            raise DeliveryFailedError(message)
        if tiers.falls_short(value, target, relative_tolerance=METRIC_RELATIVE_TOLERANCE):
            message = (
                f"the exported model was measured again and has {self._metric}={value:.6g}, which misses the target "
                f"{target:g} although {tiers.kept_value:.6g} had been reported; "
                "evaluate() must measure what report() tells"
            )
            raise FallsShortError(message)

    def _put_in_place(self, scratch: Path, delivery_id: str) -> None:
        folder = self._exports / delivery_id
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)


def measure(evaluate: Evaluate, predict: Predict, metric: str) -> float:
    """Run the script's measurement.

    Returns:
        The value of ``metric``: the number that ``evaluate`` returned, or that entry when it returned several.
    """
    measured = evaluate(predict)
    return float(measured[metric] if isinstance(measured, Mapping) else measured)


def _failure(request: trainer_pb2.ExportRequest, reason: str, *, falls_short: bool = False) -> trainer_pb2.ExportDone:
    logger.warning("%s: %s", request.delivery_id, reason)
    return trainer_pb2.ExportDone(delivery_id=request.delivery_id, error=reason, falls_short=falls_short)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
