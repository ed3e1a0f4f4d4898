"""A script on trial, as ``tiercel check`` starts it: a few steps, and then all that a job does with a model."""

from __future__ import annotations

import atexit
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from tiercel.core.figures import number
from tiercel.core.model_files import MODEL_FILE
from tiercel.core.script_checks import CheckFinding, CheckOrder
from tiercel.trainer_agent.trainer.checkpoints import CheckpointStore
from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.job import Item
from tiercel.trainer_agent.trainer.reporting import as_numbers, require_metric
from tiercel.trainer_agent.trainer.signature import Evaluate
from tiercel.trainer_agent.trainer.standalone import StandaloneJob
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.trainer_agent.trainer.verification import first_line
from tiercel.v1 import trainer_pb2

_NAME = "check"
_NO_REPORT = "the script reports nothing"
_NO_MODEL = "no report came with a model: call job.deliver(), or give export= to connect()"
# A tier goes by what the exported model has; by this much it may differ from what was reported before people are told.
_TOLD_DIFFERENCE = 0.01


class CheckedJob(StandaloneJob):
    """A job that ends after the first report of which a model can be had.

    Args:
        trained: The model in training.
        evaluate: The script's own measurement, or None.
        folder: Of the trial.
    """

    def __init__(self, trained: Trained, evaluate: Evaluate | None, folder: Path) -> None:
        super().__init__(trained)
        self._evaluate, self._folder, self._order = evaluate, folder, CheckOrder.read(folder)
        self._is_checked = self._has_reported = False
        self._tell("connect", ok=True, found="the script calls connect()")
        atexit.register(self.close)

    @property
    def is_attached(self) -> bool:
        """As in a job."""
        return True

    @property
    def is_stopping(self) -> bool:
        """Once all was tried."""
        return self._is_checked

    def epochs(self, count: int) -> Iterator[int]:
        """The first, and others only while no report came with a model."""
        for epoch in super().epochs(count):
            if self._is_checked:
                return
            yield epoch

    def steps(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The first few batches."""
        yield from islice(batches, self._order.steps)

    def report(self, **metrics: float) -> None:
        """Print the metrics; with the first model that comes, try all that a job does with one."""
        numbers = as_numbers(metrics)
        require_metric(self._order.metric, numbers)
        super().report(**metrics)
        self._has_reported = True
        if self._is_checked or not self._trained.has_model:
            return
        self._is_checked = True
        value = numbers[self._order.metric]
        self._tell("report", ok=True, found=", ".join(f"{name} {number(each)}" for name, each in numbers.items()))
        self._try_hand_over(value)
        self._try_checkpoint()

    def close(self) -> None:
        """Say so where there was no model."""
        if not (self._is_checked or getattr(sys, "last_value", None)):
            self._is_checked = True
            self._tell("report", ok=False, found=_NO_MODEL if self._has_reported else _NO_REPORT)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:  # else the script says what is wrong
            self.close()

    def _try_hand_over(self, value: float) -> None:
        began = time.monotonic()
        # Any model will do for this target.
        target = math.inf if self._order.smaller_is_better else -math.inf
        tiers = TierTracker(smaller_is_better=self._order.smaller_is_better, targets=[target])
        tiers.observe(value)
        handover = Handover(self._trained, self._evaluate, metric=self._order.metric, exports=self._folder)
        request = trainer_pb2.ExportRequest(delivery_id=_NAME, target=target)
        done = handover.hand_over(request, self._trained.keep(), tiers)
        took = time.monotonic() - began
        if done.error:
            self._tell("export", ok=False, found=done.error)
            return
        model = self._folder / _NAME / MODEL_FILE
        self._tell("export", ok=True, found=f"{model.stat().st_size:,} bytes of ONNX in {took:.2f} s; {_form(model)}")
        measured = f"{self._order.metric} {number(done.value)} by ONNX Runtime"
        if abs(done.value - value) > _TOLD_DIFFERENCE * abs(value):
            measured += (
                f", and {number(value)} was reported: a tier goes by the first, so evaluate() has to measure the same"
            )
        self._tell("measure", ok=True, found=measured)

    def _try_checkpoint(self) -> None:
        store = CheckpointStore(self._folder / "checkpoints", self._trained.checkpoint_format, interval_seconds=0.0)

        def write_and_read() -> str:
            store.save(self._trained.state({}))
            state = store.load()
            if state is None:
                raise RuntimeError("what was written cannot be read again")
            self._trained.restore(state, 0)
            return f"{sum(each.stat().st_size for each in (self._folder / 'checkpoints').iterdir()):,} bytes, restored"

        self._try("checkpoint", write_and_read)

    def _try(self, check: str, action: Callable[[], str]) -> None:
        try:
            found = action()
        except Exception as error:  # what the script saves may raise anything
            self._tell(check, ok=False, found=first_line(error))
        else:
            self._tell(check, ok=True, found=found)

    def _tell(self, check: str, *, ok: bool, found: str) -> None:
        CheckFinding(check, ok, found).append(self._folder)


def _form(path: Path) -> str:
    """What a model takes and gives, as people read it."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    taken, given = (", ".join(map(_text, each)) for each in (session.get_inputs(), session.get_outputs()))
    return f"takes {taken}; gives {given}"


def _text(tensor: Any) -> str:
    kind = str(tensor.type).removeprefix("tensor(").removesuffix(")")
    return f"{tensor.name} {kind}[{', '.join(str(axis) if isinstance(axis, int) else 'any' for axis in tensor.shape)}]"
