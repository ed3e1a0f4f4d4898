"""Answering the agent's request for a model: export, check, measure again, put the files in place."""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError
from tiercel.trainer_agent.trainer.signature import Evaluate, Predict
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Copy, Trained
from tiercel.trainer_agent.trainer.verification import Compared, first_line
from tiercel.v1 import trainer_pb2

logger = logging.getLogger(__name__)

MODEL_FILE = "model.onnx"
REFERENCE_FILE = "reference.npz"
# By how much the re-measured metric may miss a target that the report had reached, as a fraction of the target: the
# two engines round differently.
METRIC_RELATIVE_TOLERANCE = 1e-4


class Handover:
    """Makes the files of a delivery of a kept copy.

    Args:
        trained: The model in training; only copies of it are exported.
        evaluate: The script's own measurement; None where it has none, and what it reported counts.
        metric: Name of the metric that the tiers are about.
        exports: Folder of the run in which each delivery gets a folder of its own.
    """

    def __init__(self, trained: Trained, evaluate: Evaluate | None, *, metric: str, exports: Path) -> None:
        self._trained, self._evaluate, self._metric, self._exports = trained, evaluate, metric, exports

    def hand_over(self, request: trainer_pb2.ExportRequest, copy: Copy, tiers: TierTracker) -> trainer_pb2.ExportDone:
        """Export the copy and measure it again; the training is afterwards as it was before.

        Never raises for a model that cannot be handed over: the answer then says why.
        """
        started = time.monotonic()
        scratch = self._exports / f".{request.delivery_id}.part"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(parents=True)
            with self._trained.preserved_random_state():
                value, compared = self._export(scratch, copy, tiers)
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

    def _export(self, folder: Path, copy: Copy, tiers: TierTracker) -> tuple[float, Compared]:
        try:
            exported = self._trained.export(copy, folder / MODEL_FILE)
            value = self._measure(exported.predict, tiers)
            compared = exported.compared()
        except DeliveryFailedError as error:
            message = f"the model cannot be handed over as ONNX. {error}"
            raise DeliveryFailedError(message) from error
        np.savez(folder / REFERENCE_FILE, allow_pickle=False, **exported.reference())
        return value, compared

    def _measure(self, predict: Predict, tiers: TierTracker) -> float:
        if self._evaluate is None:
            return math.nan if tiers.kept_value is None else tiers.kept_value
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
