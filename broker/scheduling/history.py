"""Earlier runs: the curve of each, kept short while it runs, and what policies see of them by what they trained."""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping

from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.broker.scheduling.latest import LatestJobs
from tiercel.core.jobs import Direction, Observation
from tiercel.core.lineage import thinned
from tiercel.core.run_records import RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT, RunRecord

MAX_POINTS = 64
DIFFERS = (0.2, 0.4, 0.6)
"""How much the work of a run may differ from that of a job like it (see :func:`.similar_to`): of an edited program, of
the same one with other arguments, of another one for the same endpoint; standard deviations of the logarithm. Between
batch sizes of real programs the epochs to a target differ by .18 to .29 (benchmarks/data/curves.json), their cost by
more."""


class RunCurve:
    """Collects reports as pairs of CPU seconds and the best metric so far; bounded.

    Args:
        direction: Whether a larger or a smaller metric is better.
        observations: Earlier reports, oldest first.
    """

    def __init__(self, direction: Direction, observations: Iterable[Observation] = ()) -> None:
        self._direction = direction
        self._points: list[tuple[float, float]] = []
        self._last: tuple[float, float] | None = None
        for observation in observations:
            self.add(observation)

    def add(self, observation: Observation) -> None:
        """Take in a report. Only what is better than all before it makes a point."""
        value, spent = observation.value, observation.cpu_seconds
        if not (math.isfinite(value) and math.isfinite(spent)):
            return
        best = value if self._last is None else self._direction.better(self._last[1], value)
        if self._last is not None:
            spent = max(spent, self._last[0])
        if self._last is None or best != self._last[1]:
            self._points.append((spent, best))
            if len(self._points) > 2 * MAX_POINTS:
                self._points = list(thinned(self._points, MAX_POINTS))
        self._last = (spent, best)

    def after(self, observed: Iterable[Observation]) -> RunCurve:
        """A copy that has taken in more reports, oldest first."""
        copy = RunCurve(self._direction)
        copy._points, copy._last = list(self._points), self._last
        for observation in observed:
            copy.add(observation)
        return copy

    def points(self) -> tuple[tuple[float, float], ...]:
        """At most :data:`MAX_POINTS` pairs, the first and the last report among them; empty before the first."""
        if self._last is None:
            return ()
        ends_flat = self._points[-1] != self._last
        kept = thinned(self._points, MAX_POINTS - ends_flat)
        return (*kept, self._last) if ends_flat else kept


class History:
    """The latest runs of the workloads that ran last; bounded.

    Args:
        known: What is known from the beginning, by workload; of each the latest last.
        similar: Likewise, by what similar jobs share.
        runs: How many runs of a workload are kept.
        workloads: How many workloads are kept.
    """

    def __init__(
        self,
        known: Mapping[str, tuple[PastRun, ...]] = types.MappingProxyType({}),
        similar: Mapping[str, tuple[PastRun, ...]] = types.MappingProxyType({}),
        *,
        runs: int = RUNS_KEPT_PER_WORKLOAD,
        workloads: int = WORKLOADS_KEPT,
    ) -> None:
        self._runs: LatestJobs[PastRun] = LatestJobs(runs, workloads)
        self._similar: LatestJobs[PastRun] = LatestJobs(runs, workloads * len(DIFFERS))
        for kept, by_key in ((self._runs, known), (self._similar, similar)):
            for key, past in by_key.items():
                for number, run in enumerate(past):
                    kept.put(key, f"before {number}", run)
        self._shown: Mapping[str, tuple[PastRun, ...]] | None = None
        self._shown_similar: Mapping[str, tuple[PastRun, ...]] | None = None

    def add(self, *records: RunRecord) -> None:
        """Remember runs, the latest last; each replaces what was remembered of the same job."""
        for record in records:
            curve = tuple(CurvePoint(spent, value) for spent, value in record.curve)
            self._runs.put(record.workload, record.job_id, PastRun(curve))
            for similar, differs in zip(record.similar, DIFFERS, strict=False):
                self._similar.put(similar, record.job_id, PastRun(curve, differs))
        self._shown = self._shown_similar = None

    def by_workload(self) -> Mapping[str, tuple[PastRun, ...]]:
        """Runs by workload, the latest last; the same object until a run is added."""
        if self._shown is None:
            self._shown = _by_key(self._runs)
        return self._shown

    def by_similar(self) -> Mapping[str, tuple[PastRun, ...]]:
        """Runs by each fingerprint that similar jobs share, the latest last; likewise."""
        if self._shown_similar is None:
            self._shown_similar = _by_key(self._similar)
        return self._shown_similar


def _by_key(kept: LatestJobs[PastRun]) -> Mapping[str, tuple[PastRun, ...]]:
    return types.MappingProxyType({key: kept.of(key) for key in kept})
