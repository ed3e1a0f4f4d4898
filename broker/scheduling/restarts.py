"""What it costs a job to be stopped and to go on, learnt from what the latest starts of its program took.

A median of five, and no moving average: a start that had to wait for an image or an environment to be built takes a
thousand times as long as others, and one of that kind should change nothing. The next start on a node is expected to be
like the newest there, warm or cold, and counts those alone; where the program has not run yet it is expected cold.
"""

from __future__ import annotations

import statistics
import types
from collections.abc import Iterable, Mapping, Sequence

from tiercel.broker.scheduling.interface import RestartCost
from tiercel.broker.scheduling.latest import LatestJobs
from tiercel.core.starts import STARTS_KEPT, Start


def cost_of(starts: Sequence[Start]) -> RestartCost:
    """What a restart costs.

    Args:
        starts: Of one program, the oldest first.
    """
    by_node: dict[str, list[Start]] = {}
    for start in starts:
        by_node.setdefault(start.node_id, []).append(start)
    return RestartCost(
        stop_seconds=_median(start.stop_seconds for start in starts if start.stop_seconds is not None),
        cold_seconds=_median(start.seconds for start in starts if not start.warm),
        start_seconds=types.MappingProxyType({node_id: _next_start(there) for node_id, there in by_node.items()}),
        start_cpu_seconds=_median(start.cpu_seconds for start in starts),
    )


def _next_start(starts: Sequence[Start]) -> float:
    newest = starts[-1]
    return _median(start.seconds for start in starts if start.warm is newest.warm) or 0.0


def _median(seconds: Iterable[float]) -> float | None:
    latest = list(seconds)[-STARTS_KEPT:]
    return statistics.median(latest) if latest else None


class Restarts:
    """The latest starts of the workloads that ran last; bounded."""

    def __init__(self) -> None:
        self._starts: LatestJobs[tuple[Start, ...]] = LatestJobs()
        self._costs: dict[str, RestartCost] = {}
        self._shown: Mapping[str, RestartCost] | None = None

    def put(self, workload: str, job_id: str, starts: tuple[Start, ...]) -> None:
        """Remember a job's starts, in place of what was remembered of it; nothing where there are none."""
        if not starts:
            return
        self._starts.put(workload, job_id, starts)
        self._costs[workload] = cost_of([start for job in self._starts.of(workload) for start in job])
        self._shown = None

    def by_workload(self) -> Mapping[str, RestartCost]:
        """What is known by workload; the same object until a start is added."""
        if self._shown is None:
            self._costs = {workload: self._costs[workload] for workload in self._starts}
            self._shown = types.MappingProxyType(dict(self._costs))
        return self._shown
