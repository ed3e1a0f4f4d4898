"""What the latest jobs of the workloads that ran last left behind; bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from tiercel.core.run_records import RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT

T = TypeVar("T")


class LatestJobs(Generic[T]):
    """Something of each of the latest jobs, by workload.

    Args:
        jobs: How many jobs of a workload are kept.
        workloads: How many workloads are kept.
    """

    def __init__(self, jobs: int = RUNS_KEPT_PER_WORKLOAD, workloads: int = WORKLOADS_KEPT) -> None:
        self._most_jobs = jobs
        self._most_workloads = workloads
        # Workloads in the order of their latest job; of each, its jobs in the order they were put.
        self._kept: dict[str, dict[str, T]] = {}

    def put(self, workload: str, job_id: str, what: T) -> None:
        """Remember something of a job, in place of what was remembered of it before."""
        jobs = self._kept.pop(workload, {})
        jobs.pop(job_id, None)
        jobs[job_id] = what
        while len(jobs) > self._most_jobs:
            del jobs[next(iter(jobs))]
        self._kept[workload] = jobs
        while len(self._kept) > self._most_workloads:
            del self._kept[next(iter(self._kept))]

    def of(self, workload: str) -> tuple[T, ...]:
        """What is kept of a workload, the latest last."""
        return tuple(self._kept.get(workload, {}).values())

    def __iter__(self) -> Iterator[str]:
        """The workloads, the one with the latest job last."""
        return iter(self._kept)
