"""Earlier runs as policies see them, by what they trained."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.core.run_records import RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tiercel.core.run_records import RunRecord


class History:
    """The latest runs of the workloads that ran last; bounded.

    Args:
        records: What is remembered, oldest first.
        runs: How many runs of a workload are kept.
        workloads: How many workloads are kept.
    """

    def __init__(
        self,
        records: Iterable[RunRecord] = (),
        *,
        runs: int = RUNS_KEPT_PER_WORKLOAD,
        workloads: int = WORKLOADS_KEPT,
    ) -> None:
        self._most_runs = runs
        self._most_workloads = workloads
        # Workloads in the order of their latest run; of each, its runs by job in the order they were recorded.
        self._runs: dict[str, dict[str, PastRun]] = {}
        self._shown: Mapping[str, tuple[PastRun, ...]] | None = None
        self.add(*records)

    def add(self, *records: RunRecord) -> None:
        """Remember runs, the latest last; each replaces what was remembered of the same job."""
        for record in records:
            self._add(record)
        self._shown = None

    def _add(self, record: RunRecord) -> None:
        runs = self._runs.pop(record.workload, {})
        runs.pop(record.job_id, None)
        runs[record.job_id] = PastRun(tuple(CurvePoint(spent, value) for spent, value in record.curve))
        while len(runs) > self._most_runs:
            del runs[next(iter(runs))]
        self._runs[record.workload] = runs
        while len(self._runs) > self._most_workloads:
            del self._runs[next(iter(self._runs))]

    def by_workload(self) -> Mapping[str, tuple[PastRun, ...]]:
        """Runs by workload, the latest last; the same object until a run is added."""
        if self._shown is None:
            shown = {workload: tuple(runs.values()) for workload, runs in self._runs.items()}
            self._shown = types.MappingProxyType(shown)
        return self._shown
