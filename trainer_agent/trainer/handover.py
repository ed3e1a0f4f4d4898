"""Answering the agent's request for a model: export, check, measure again, put the files in place."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiercel.core.cheap_variants import CHEAP, CheapVariant, VariantKind
from tiercel.core.figures import compared, number
from tiercel.core.model_files import MODEL_FILE, REFERENCE_FILE
from tiercel.core.onnx_data import DATA_FILE
from tiercel.core.wire import to_proto
from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError
from tiercel.trainer_agent.trainer.cheap_variants import make_variant
from tiercel.trainer_agent.trainer.onnx_files import link_or_copy
from tiercel.trainer_agent.trainer.reporting import say
from tiercel.trainer_agent.trainer.signature import Evaluate, Predict
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Copy, Exported, Trained
from tiercel.trainer_agent.trainer.variant_making import WALL_SECONDS
from tiercel.trainer_agent.trainer.verification import Compared, first_line
from tiercel.v1 import common_pb2, trainer_pb2

logger = logging.getLogger(__name__)

_AGAIN_FOLDER = ".again.part"
_VARIANT_FOLDER = ".variant.part"
# By how much the re-measured metric may miss a target that the report had reached, as a fraction of the target: the
# two engines round differently.
METRIC_RELATIVE_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class _Made:
    """What was made of a copy: its metric when measured again, how it was compared, its checksum, cheap variants."""

    copy: Copy
    value: float
    compared: Compared
    sha256: str
    variants: tuple[CheapVariant, ...]


class Handover:
    """Makes the files of a delivery of a kept copy. A copy that reached several tiers is exported once.

    Args:
        trained: The model in training; only copies of it are exported.
        evaluate: The script's own measurement; None where it has none, and what it reported counts.
        metric: Name of the metric that the tiers are about.
        exports: Folder of the run in which each delivery gets a folder of its own.
    """

    def __init__(self, trained: Trained, evaluate: Evaluate | None, *, metric: str, exports: Path) -> None:
        self._trained, self._evaluate, self._metric, self._exports = trained, evaluate, metric, exports
        trained.use_folder(exports)
        self._made: _Made | None = None  # whose files lie in the folder for the tiers that come next

    def hand_over(self, request: trainer_pb2.ExportRequest, copy: Copy, tiers: TierTracker) -> trainer_pb2.ExportDone:
        """Export the copy and measure it again; the training is afterwards as it was before.

        Never raises for a model that cannot be handed over: the answer then says why.
        """
        started = time.monotonic()
        scratch = self._exports / f".{request.delivery_id}.part"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(parents=True)
            made = self._make(scratch, copy, tiers, _kinds_of(request))
            self._keep_for(set(tiers.expected) - {request.target}, made, scratch)
            self._check_value(made.value, request.target, tiers)
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
        measured = f"{self._metric}={number(made.value)}"
        message = f"handed over {request.delivery_id}: {measured} in {took:.2f} s, {made.compared.summary}"
        say(message)
        done = trainer_pb2.ExportDone(delivery_id=request.delivery_id, value=made.value, sha256=made.sha256)
        done.cheap_variants.extend(to_proto(each, common_pb2.CheapVariant) for each in made.variants)
        return done

    def forget(self) -> None:
        """Another copy is kept from now on."""
        if self._made is not None:
            self._made = None
            shutil.rmtree(self._exports / _AGAIN_FOLDER, ignore_errors=True)

    def _make(self, folder: Path, copy: Copy, tiers: TierTracker, kinds: Iterable[VariantKind]) -> _Made:
        if self._made is not None and self._made.copy is copy:
            _copy_files(self._exports / _AGAIN_FOLDER, folder)
            return self._made
        with self._trained.preserved_random_state():
            exported, value, compared = self._export(folder, copy, tiers)
            until = time.monotonic() + WALL_SECONDS
            variants = tuple(self._variant(kind, folder, exported, until) for kind in kinds)
        return _Made(copy, value, compared, _sha256(folder / MODEL_FILE), variants)

    def _variant(self, kind: VariantKind, folder: Path, exported: Exported, until: float) -> CheapVariant:
        """Make a cheap variant beside the model that was exported."""
        if (folder / DATA_FILE).exists():
            reason = f"the model's weights lie in {DATA_FILE}, and {kind} models are made of one file"
            return CheapVariant(kind, reason=reason)
        evaluate, scratch = self._evaluate, folder / _VARIANT_FOLDER
        own = None if evaluate is None else (lambda predict: measure(evaluate, predict, self._metric))
        scratch.mkdir()
        try:
            seconds = max(0.0, until - time.monotonic())
            return make_variant(kind, exported, folder / MODEL_FILE, scratch, own, seconds)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _keep_for(self, targets: set[float], made: _Made, folder: Path) -> None:
        """Keep the files while other tiers that were reached are to be asked for; not after the last."""
        if not targets:
            self.forget()
        elif self._made is not made:
            again = self._exports / _AGAIN_FOLDER
            shutil.rmtree(again, ignore_errors=True)
            with contextlib.suppress(OSError):  # else it is exported again
                again.mkdir()
                _copy_files(folder, again)
                self._made = made

    def _export(self, folder: Path, copy: Copy, tiers: TierTracker) -> tuple[Exported, float, Compared]:
        try:
            exported = self._trained.export(copy, folder / MODEL_FILE)
            value = self._measure(exported.predict, tiers)
            compared = exported.compared()
        except DeliveryFailedError as error:
            message = f"the model cannot be handed over as ONNX. {error}"
            raise DeliveryFailedError(message) from error
        np.savez(folder / REFERENCE_FILE, allow_pickle=False, **exported.reference())
        return exported, value, compared

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
            measured, wanted = compared(value, target)
            message = (
                f"the exported model was measured again and has {self._metric}={measured}, which misses the target "
                f"{wanted} although {tiers.kept_value:.6g} had been reported; "
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


def _kinds_of(request: trainer_pb2.ExportRequest) -> list[VariantKind]:
    """The cheap variants that are asked for; one of a later release is left out."""
    asked = set(request.cheap_variants)
    return [kind for kind in CHEAP if common_pb2.VariantKind.Value(f"VARIANT_KIND_{kind.name}") in asked]


def _failure(request: trainer_pb2.ExportRequest, reason: str, *, falls_short: bool = False) -> trainer_pb2.ExportDone:
    logger.warning("%s: %s", request.delivery_id, reason)
    return trainer_pb2.ExportDone(delivery_id=request.delivery_id, error=reason, falls_short=falls_short)


def _copy_files(source: Path, target: Path) -> None:
    for name in (MODEL_FILE, REFERENCE_FILE, *(kind.file for kind in CHEAP)):
        if name in (MODEL_FILE, REFERENCE_FILE) or (source / name).exists():
            shutil.copyfile(source / name, target / name)
    if (source / DATA_FILE).exists():
        link_or_copy(source / DATA_FILE, target / DATA_FILE)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
