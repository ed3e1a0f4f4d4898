"""Programs and arrivals from published records of real training (``benchmarks/data``), as the simulator takes them.

Shapes, differences between runs, sizes and arrivals are the records'. The CPU seconds of an epoch are drawn, since
what was recorded on accelerators for days has to fit a small cluster for minutes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

from benchmarks.simulated_workloads import STARTUP_CPU_SECONDS, WAYS
from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.broker.simulation import Workload
from tiercel.broker.simulation.curves import RecordedCurve, Trajectory
from tiercel.core.jobs import Tier

DATA = Path(__file__).resolve().parents[1] / "data"
_REPEATED_TIERS = (0.5, 0.6)
_LONGEST = 100.0  # the longest job of the cluster's record counts as so many times the median one at most


@dataclass(frozen=True, slots=True)
class Program:
    """A program with what was seen of it before."""

    workload: Workload  # the program
    past: tuple[PastRun, ...]  # earlier runs of it, or of one that differs from it in its batch size


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A program of which several runs were recorded: each job repeats one of them."""

    runs: tuple[RecordedCurve, ...]

    def trajectory(
        self, reports: int, work_per_report: float, startup_cpu_seconds: float, noise: float, source: Random
    ) -> Trajectory:
        """One of the runs; see :class:`.Curve`."""
        return source.choice(self.runs).trajectory(reports, work_per_report, startup_cpu_seconds, noise, source)


@dataclass(frozen=True, slots=True)
class RecordedArrivals:
    """Jobs come when they came to the cluster, at another pace, from some job of the record on."""

    submitted: tuple[float, ...]  # seconds of all submissions, ascending
    mean_gap_seconds: float  # between two jobs in the mean

    def times(self, count: int, source: Random) -> Sequence[float]:
        """Arrival times; see :class:`.Arrivals`."""
        first = source.randrange(len(self.submitted) - count)
        window = self.submitted[first : first + count]
        scale = self.mean_gap_seconds * (count - 1) / max(window[-1] - window[0], 1.0)
        return [(at - window[0]) * scale for at in window]


def edited_programs(count: int, source: Random) -> list[Program]:
    """Programs that learn as recorded ones did; runs at other batch sizes are what is known of them."""
    recorded = [
        (f"{name}-{batch}", values, [other for size, other in sizes.items() if size != batch])
        for name, sizes in json.loads((DATA / "curves.json").read_text(encoding="utf-8")).items()
        for batch, values in sizes.items()
    ]
    chosen = [*recorded] * (count // len(recorded) + 1)
    source.shuffle(chosen)
    return [
        _edited(f"{name}-{number}", values, source.sample(others, 4), source)
        for number, (name, values, others) in enumerate(chosen[:count])
    ]


def _edited(name: str, values: Sequence[float], others: Sequence[Sequence[float]], source: Random) -> Program:
    start, best = values[0], max(values)
    targets = [start + way * (best - start) for way in WAYS]
    first = next(number for number, value in enumerate(values, start=1) if value >= targets[0])
    epoch = 8.0 * source.lognormvariate(0.0, 1.0) / first
    past = tuple(_past(_curve(list(enumerate(other, start=1)), epoch)) for other in others)
    curve = _curve(list(enumerate(values, start=1)), epoch)
    return Program(_workload(name, curve, targets, reports=len(values), spread=0.1), past)


def repeated_programs(count: int, source: Random) -> list[Program]:
    """Programs of which several runs were recorded that differ by chance alone: half of them are the earlier ones."""
    recorded: list[tuple[str, list[list[tuple[float, int]]]]] = [
        (f"{name}-{batch}", runs)
        for name, sizes in json.loads((DATA / "repeated_runs.json").read_text(encoding="utf-8")).items()
        for batch, runs in sizes.items()
    ]
    chosen = [*recorded] * (count // len(recorded) + 1)
    source.shuffle(chosen)
    programs = []
    for number, (name, runs) in enumerate(chosen[:count]):
        epoch = source.lognormvariate(0.0, 0.5)
        curves = [_curve(_by_epoch(run), epoch) for run in runs]
        longest = max(len(curve.points) for curve in curves)
        known, unknown = curves[1::2][:4], AnyOf(tuple(curves[::2]))
        workload = _workload(f"{name}-{number}", unknown, _REPEATED_TIERS, reports=longest, spread=0.0)
        programs.append(Program(workload, tuple(map(_past, known))))
    return programs


def _by_epoch(reached: Sequence[tuple[float, int]]) -> list[tuple[int, float]]:
    """The accuracy after each epoch: known where it first met one of those recorded, in between by a straight line."""
    best = {epoch: accuracy for accuracy, epoch in reached}  # the best of those met in one epoch
    points = [(0, 0.0), *sorted(best.items())]
    found = []
    for (before, low), (after, high) in pairwise(points):
        found += [(at, low + (high - low) * (at - before) / (after - before)) for at in range(before + 1, after + 1)]
    return found


def _curve(by_epoch: Sequence[tuple[int, float]], epoch_cpu_seconds: float) -> RecordedCurve:
    points = (CurvePoint(STARTUP_CPU_SECONDS + epoch * epoch_cpu_seconds, value) for epoch, value in by_epoch)
    return RecordedCurve(tuple(points))


def _past(curve: RecordedCurve) -> PastRun:
    best = accumulate((point.value for point in curve.points), max)
    return PastRun(tuple(CurvePoint(p.cpu_seconds, value) for p, value in zip(curve.points, best, strict=True)))


def _workload(
    name: str, curve: RecordedCurve | AnyOf, targets: Sequence[float], *, reports: int, spread: float
) -> Workload:
    return Workload(
        name=name,
        curve=curve,
        tiers=tuple(map(Tier, targets)),
        startup_cpu_seconds=STARTUP_CPU_SECONDS,
        max_epochs=reports,
        continue_after_last_tier=True,
        speed_spread=spread,
    )


def cluster_jobs() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of submission of a production cluster's jobs, and how long each ran in medians of all."""
    with (DATA / "philly_jobs.csv").open(encoding="utf-8") as lines:
        rows = [(float(row["submit_seconds"]), float(row["duration_seconds"])) for row in csv.DictReader(lines)]
    durations = sorted(duration for _, duration in rows)
    median = durations[len(durations) // 2]
    return tuple(at for at, _ in rows), tuple(min(max(took, 1.0) / median, _LONGEST) for _, took in rows)
