"""The cheap variants of an exported model: made, measured by the script, and timed beside it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.signature import Array, Predict
from tiercel.trainer_agent.trainer.trained import Exported
from tiercel.trainer_agent.trainer.variant_making import make
from tiercel.trainer_agent.trainer.verification import OnnxModel, first_line

# As many as the scheduler puts together when much is asked, which is when a cheap model answers.
_ROWS: Final = 16
_LEAST_RUNS: Final = 5
_MOST_RUNS: Final = 50
_SECONDS: Final = 0.5


def make_variant(
    kind: VariantKind,
    exported: Exported,
    model: Path,
    scratch: Path,
    measure: Callable[[Predict], float] | None,
    seconds: float,
) -> CheapVariant:
    """Make a cheap variant of an exported model beside it, and find out how accurate and how fast it is.

    Args:
        kind: Which.
        exported: What it is made of.
        model: Its file.
        scratch: An empty folder that is there for it.
        measure: The script's own measurement; None where it has none.
        seconds: What making it may take.

    Returns:
        What came of it; with a reason where there is none that could be shipped.
    """
    target = model.with_name(kind.file)
    rows = exported.rows
    try:
        if measure is None:
            raise DeliveryFailedError("the script has no evaluate(), so that nobody knows how accurate it would be")  # noqa: TRY301
        original = OnnxModel(model, 1, exported.model.input_names, accelerated=kind is VariantKind.FP16)
        made = make(kind, model, target, None if rows is None else original.feeds(rows), scratch, seconds)
        variant = OnnxModel(target, 1, original.input_names, accelerated=original.is_accelerated)
        value = measure(exported.predict_with(variant))
        shown = {name.removeprefix("input_"): each for name, each in exported.reference().items()}
        return measured(kind, made, value, (original, variant), shown, target)
    except DeliveryFailedError as error:
        return _without(kind, target, error.message)
    except Exception as error:  # evaluate is the script's, and ONNX Runtime's errors have no common base
        return _without(kind, target, first_line(error))


def measured(
    kind: VariantKind,
    made: str,
    value: float,
    models: tuple[OnnxModel, OnnxModel],
    rows: Mapping[str, Array],
    file: Path,
) -> CheapVariant:
    """What there is to be said of a variant whose accuracy is known.

    Args:
        kind: Which it is.
        made: How it was made.
        value: Its accuracy.
        models: The original and the variant, to be timed.
        rows: What they are asked meanwhile, by input.
        file: The variant's.
    """
    fp32_seconds, seconds = seconds_of_a_row(*models, rows)
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        return CheapVariant(
            kind,
            made=made,
            value=value,
            seconds=seconds,
            fp32_seconds=fp32_seconds,
            size_bytes=content.tell(),
            sha256=sha256,
        )


def _without(kind: VariantKind, target: Path, reason: str) -> CheapVariant:
    target.unlink(missing_ok=True)
    return CheapVariant(kind, reason=reason)


def seconds_of_a_row(original: OnnxModel, variant: OnnxModel, rows: Mapping[str, Array]) -> tuple[float, float]:
    """Seconds of both, in turn, so that what slows the machine down meets both; the fastest run of each.

    They are those of the CPU, or, on an accelerator, those that pass.

    Args:
        original: The model.
        variant: The one that was made of it.
        rows: What they are asked, by input; few are asked again and again.
    """
    feeds = original.feeds_of({name: np.resize(rows[name], (_ROWS, *rows[name].shape[1:])) for name in original.taken})
    clock = time.perf_counter if original.is_accelerated else time.thread_time
    best = [float("inf"), float("inf")]
    give_up = time.monotonic() + _SECONDS
    for run in range(_MOST_RUNS):
        if run >= _LEAST_RUNS and time.monotonic() > give_up:
            break
        for index, model in enumerate((original, variant)):
            began = clock()
            model.answers(feeds)
            best[index] = min(best[index], clock() - began)
    return best[0] / _ROWS, best[1] / _ROWS
