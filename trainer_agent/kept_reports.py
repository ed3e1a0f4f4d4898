"""The reports of a run that are kept for a broker that has not heard them: bounded in number and in bytes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tiercel.trainer_agent.report_sieve import Goal, Milestones
from tiercel.v1 import nodes_pb2

MAX_REPORTS: Final = 1000
MAX_BYTES: Final = 1024 * 1024


class KeptReports:
    """The newest reports. Of older ones only those stay that must not get lost, and the best.

    Args:
        goal: What the reports are about.
        max_reports: How many are kept, beside those that stay.
        max_bytes: What these may have together, as they are sent.
    """

    def __init__(self, goal: Goal, *, max_reports: int = MAX_REPORTS, max_bytes: int = MAX_BYTES) -> None:
        self._goal = goal
        self._milestones = Milestones(goal)
        self._max_reports = max_reports
        self._max_bytes = max_bytes
        self._bytes = 0
        # Both in the order of their numbers.
        self._staying: dict[int, nodes_pb2.Progress] = {}
        self._newest: dict[int, nodes_pb2.Progress] = {}
        self._best: nodes_pb2.Progress | None = None

    def __iter__(self) -> Iterator[nodes_pb2.Progress]:
        """All of them, in the order of their numbers."""
        best = {self._best.sequence: self._best} if self._best is not None else {}
        kept = best | self._staying | self._newest
        return iter([kept[sequence] for sequence in sorted(kept)])

    def add(self, progress: nodes_pb2.Progress) -> None:
        """Keep a report, the newest of all."""
        merit = self._goal.merit(progress.metrics.items())
        if self._milestones.note(merit):
            self._staying[progress.sequence] = progress
        if not math.isnan(merit) and (self._best is None or merit > self._goal.merit(self._best.metrics.items())):
            self._best = progress
        self._newest[progress.sequence] = progress
        self._bytes += progress.ByteSize()
        while len(self._newest) > self._max_reports or self._bytes > self._max_bytes:
            oldest = self._newest.pop(next(iter(self._newest)))
            self._bytes -= oldest.ByteSize()
