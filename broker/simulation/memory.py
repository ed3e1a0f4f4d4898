"""What is remembered of runs that are over: the simulator's own keeper of ``Snapshot.history``."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping

from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.core.jobs import Direction, Observation

# As the live broker keeps them.
MAX_RUNS = 8
MAX_WORKLOADS = 512
MAX_POINTS = 64


class Memory:
    """The latest runs of the workloads that ran last; bounded.

    Args:
        history: What is known from the beginning.
    """

    def __init__(self, history: Mapping[str, tuple[PastRun, ...]]) -> None:
        # Of each workload its runs by job, in the order they were recorded; the workload that ran last is the last one.
        self._runs = {
            workload: {f"before {number}": run for number, run in enumerate(runs)} for workload, runs in history.items()
        }
        self._shown: Mapping[str, tuple[PastRun, ...]] | None = None

    def add(self, workload: str, job_id: str, curve: tuple[CurvePoint, ...]) -> None:
        """Remember a job's run, instead of what was remembered of it before; one without reports teaches nothing."""
        if not curve:
            return
        runs = self._runs.pop(workload, {})
        runs.pop(job_id, None)
        runs[job_id] = PastRun(curve)
        if len(runs) > MAX_RUNS:
            del runs[next(iter(runs))]
        self._runs[workload] = runs
        if len(self._runs) > MAX_WORKLOADS:
            del self._runs[next(iter(self._runs))]
        self._shown = None

    def by_workload(self) -> Mapping[str, tuple[PastRun, ...]]:
        """Runs by workload, the latest last; the same object until a run is added."""
        if self._shown is None:
            self._shown = types.MappingProxyType({name: tuple(runs.values()) for name, runs in self._runs.items()})
        return self._shown


def best_so_far(direction: Direction, observations: Iterable[Observation]) -> tuple[CurvePoint, ...]:
    """The best metric so far wherever it improved, and at the last report; evenly thinned, both ends kept."""
    points: list[CurvePoint] = []
    last: CurvePoint | None = None
    for seen in observations:
        best = seen.value if last is None else direction.better(last.value, seen.value)
        improved = last is None or best != last.value
        last = CurvePoint(seen.cpu_seconds, best)
        if improved:
            points.append(last)
    if last is not None and points[-1] is not last:
        points.append(last)
    if len(points) <= MAX_POINTS:
        return tuple(points)
    step = (len(points) - 1) / (MAX_POINTS - 1)
    return tuple(points[round(index * step)] for index in range(MAX_POINTS))
