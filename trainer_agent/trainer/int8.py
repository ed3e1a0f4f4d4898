"""The int8 model of an exported one: made, measured by the script, and timed beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from tiercel.core.quantised import QuantisedModel
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.quantising import quantise
from tiercel.trainer_agent.trainer.signature import Array, Predict
from tiercel.trainer_agent.trainer.trained import Exported
from tiercel.trainer_agent.trainer.verification import OnnxModel, first_line

INT8_FILE: Final = "model.int8.onnx"
# As many as the scheduler puts together when much is asked, which is when a cheap model answers.
_ROWS: Final = 16
_LEAST_RUNS: Final = 5
_MOST_RUNS: Final = 50
_SECONDS: Final = 0.5


def make_int8(
    exported: Exported, model: Path, scratch: Path, measure: Callable[[Predict], float] | None
) -> QuantisedModel:
    """Make the int8 model of an exported one beside it, and find out how accurate and how fast it is.

    Args:
        exported: What it is made of.
        model: Its file.
        scratch: An empty folder that is there for it.
        measure: The script's own measurement; None where it has none.

    Returns:
        What came of it; with a reason where there is none that could be shipped.
    """
    target = model.with_name(INT8_FILE)
    original = OnnxModel(model, 1, exported.model.input_names)
    rows = exported.rows
    try:
        if measure is None:
            raise DeliveryFailedError("the script has no evaluate(), so that nobody knows how accurate it would be")  # noqa: TRY301
        made = quantise(model, target, None if rows is None else original.feeds(rows), scratch)
        int8 = OnnxModel(target, 1, original.input_names)
        value = measure(exported.predict_with(int8))
        shown = {name.removeprefix("input_"): each for name, each in exported.reference().items()}
        fp32_seconds, seconds = seconds_of_a_row(original, int8, shown)
    except DeliveryFailedError as error:
        return _without(target, error.message)
    except Exception as error:  # evaluate is the script's, and ONNX Runtime's errors have no common base
        return _without(target, first_line(error))
    size_bytes = target.stat().st_size
    return QuantisedModel(made=made, value=value, seconds=seconds, fp32_seconds=fp32_seconds, size_bytes=size_bytes)


def _without(target: Path, reason: str) -> QuantisedModel:
    target.unlink(missing_ok=True)
    return QuantisedModel(reason=reason)


def seconds_of_a_row(original: OnnxModel, int8: OnnxModel, rows: Mapping[str, Array]) -> tuple[float, float]:
    """CPU seconds of both, in turn, so that what slows the machine down meets both; the fastest run of each.

    Args:
        original: The model.
        int8: The one that was made of it.
        rows: What they are asked, by input; few are asked again and again.
    """
    feeds = original.feeds_of({name: np.resize(rows[name], (_ROWS, *rows[name].shape[1:])) for name in original.taken})
    best = [float("inf"), float("inf")]
    give_up = time.monotonic() + _SECONDS
    for run in range(_MOST_RUNS):
        if run >= _LEAST_RUNS and time.monotonic() > give_up:
            break
        for index, model in enumerate((original, int8)):
            began = time.thread_time()
            model.answers(feeds)
            best[index] = min(best[index], time.thread_time() - began)
    return best[0] / _ROWS, best[1] / _ROWS
