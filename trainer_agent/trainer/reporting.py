"""What a script reports: numbers by name, and the line that says so in the job's log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, TextIO

from tiercel.trainer_agent.errors import MissingMetricError

EPOCH: Final = "epoch"
MAX_EPOCH: Final = 2**32 - 1  # that the contract has room for


def as_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics as floats; NaN and infinities stay what they are.

    Args:
        metrics: Numbers, or arrays and tensors with a single element.

    Raises:
        ValueError: If there are none.
        TypeError: If one is not a number; names it.
    """
    if not metrics:
        message = "report() needs at least one metric, e.g. report(accuracy=0.9)"
        raise ValueError(message)
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            message = f"report() takes numbers, but {name} is a {type(value).__name__}"
            raise TypeError(message) from error
    return numbers


def require_metric(metric: str, numbers: Mapping[str, float]) -> None:
    """Check that the metric which a job's tiers are about was reported.

    Raises:
        MissingMetricError: It was not; names what was.
    """
    if metric not in numbers:
        message = (
            f"report() got {', '.join(sorted(numbers))}, but this job's tiers are about {metric!r}: report "
            "it under that name, or submit the job with one of the reported metrics"
        )
        raise MissingMetricError(message)


def say(line: str, file: TextIO | None = None) -> None:
    """Print a line for the job's log; a script that has closed its output goes on training."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=file, flush=True)


def epoch_of(metrics: Mapping[str, float], before: int) -> int:
    """The epoch that a script tells by itself, as a metric of that name, or else the one that it told before."""
    told = metrics.get(EPOCH, -1.0)
    return int(told) if told.is_integer() and 0 <= told <= MAX_EPOCH else before


def report_line(epoch: int, metrics: Mapping[str, float]) -> str:
    """One plain line, e.g. ``epoch 3  accuracy=0.9312  loss=0.214``; what it begins with is not told once more."""
    told = [f"{name}={value:.6g}" for name, value in metrics.items() if (name, value) != (EPOCH, epoch)]
    return "  ".join([f"epoch {epoch}", *told])
