"""The reports of a run, kept for a broker that was away and for deliveries that ask what was reached. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from tiercel.trainer_agent.reports.sieve import Goal, Milestones
from tiercel.v1 import nodes_pb2

MAX_REPORTS: Final = 1000
MAX_BYTES: Final = 1 << 20


class KeptReports:
    """The reports of one run, bounded in number and in bytes.

    Where there is no room, every second one of the older half goes, but never the best, the newest, or one that must
    not get lost (see :class:`.Milestones`): what the run reached is told however long nobody listened, in coarser
    steps.

    Args:
        goal: What the reports are about.
        limit: How many are kept, at least 2, beside those that must not get lost.
        limit_bytes: How many bytes they may have together; those that never go are kept even so.
    """

    def __init__(self, goal: Goal, *, limit: int = MAX_REPORTS, limit_bytes: int = MAX_BYTES) -> None:
        self._goal = goal
        self._milestones = Milestones(goal)
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._kept: list[nodes_pb2.Progress] = []
        self._staying: set[int] = set()
        self._best = 0
        self._best_merit = -math.inf
        self._bytes = 0

    def __iter__(self) -> Iterator[nodes_pb2.Progress]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, progress: nodes_pb2.Progress) -> None:
        """Keep a report; its sequence is larger than that of the one before."""
        self._kept.append(progress)
        self._bytes += progress.ByteSize()
        merit = self._goal.merit(progress.metrics.items())
        if self._milestones.note(merit):
            self._staying.add(progress.sequence)
        if merit > self._best_merit:
            self._best, self._best_merit = progress.sequence, merit
        while len(self._kept) - len(self._staying) > self._limit or self._bytes > self._limit_bytes:
            if not self._thin():
                return

    def after(self, sequence: int) -> nodes_pb2.Progress | None:
        """The first one with a larger sequence, or None."""
        index = bisect_right(self._kept, sequence, key=lambda progress: progress.sequence)
        return self._kept[index] if index < len(self._kept) else None

    def _thin(self) -> bool:
        """Drop some; returns whether any could go."""
        spare = [each for each in self._kept[:-1] if each.sequence not in self._staying and each.sequence != self._best]
        dropped = {each.sequence for each in spare[: max(1, len(spare) // 2) : 2]}
        self._bytes -= sum(each.ByteSize() for each in spare if each.sequence in dropped)
        self._kept = [each for each in self._kept if each.sequence not in dropped]
        return bool(dropped)
