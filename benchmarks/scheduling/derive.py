"""Derives tiers and budgets of kinds from long runs of the workloads, without Tiercel around them."""

from __future__ import annotations

import math
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scheduling.kinds import BUDGET_FACTOR, GAIN_FRACTIONS, GUESSING, WORKLOADS, Kind
from benchmarks.scheduling.schedules import TRAINING_SEEDS
from tiercel import Direction

_REPORT = re.compile(r"^epoch (\d+)  \w+=(.*)$", re.MULTILINE)
LAST_PART = 7
"""The plateau is the mean over the last seventh of a long run."""

Curve = Sequence[tuple[int, float]]
"""Epochs and the metric, for each report."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Where a kind's tiers belong."""

    targets: tuple[float, ...]  # of its tiers, rounded
    max_epochs: int  # its budget


def derive(kind: Kind) -> Derived:
    """Run a kind for long with each training seed, one after the other, and derive its tiers."""
    return derive_from([_run(kind, seed) for seed in range(TRAINING_SEEDS)], kind.direction)


def derive_from(curves: Sequence[Curve], direction: Direction) -> Derived:
    """Derive tiers from long runs with different seeds.

    Args:
        curves: Of long runs, none empty.
        direction: Where more is better it is an accuracy among ten classes, which begins with guessing; else a loss,
            which begins with the first report.

    Raises:
        ValueError: A run never reaches the last tier.
    """
    maximise = direction is Direction.MAX
    start = GUESSING if maximise else statistics.fmean(curve[0][1] for curve in curves)
    plateau = statistics.fmean(_plateau(curve) for curve in curves)
    digits = 3 if maximise else 1
    targets = tuple(round(start + part * (plateau - start), digits) for part in GAIN_FRACTIONS)
    slowest = 0
    for curve in curves:
        epoch = next((epoch for epoch, value in curve if direction.reaches(value, targets[-1])), None)
        if epoch is None:
            raise ValueError(f"a run never reached {targets[-1]:g}; train for longer")
        slowest = max(slowest, epoch)
    return Derived(targets, math.ceil(BUDGET_FACTOR * slowest))


def _plateau(curve: Curve) -> float:
    values = [value for _, value in curve]
    return statistics.fmean(values[-max(1, len(values) // LAST_PART) :])


def _run(kind: Kind, seed: int) -> Curve:
    options = ["--epochs", str(kind.long_epochs), "--seed", str(seed)]
    command = [sys.executable, "-m", f"{WORKLOADS}.{kind.workload}", *kind.arguments, *options]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [(int(epoch), float(value)) for epoch, value in _REPORT.findall(output)]
