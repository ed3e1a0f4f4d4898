"""The reports of a run, kept for a broker that was away and for deliveries that ask what was reached."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from tiercel.v1 import nodes_pb2

MAX_REPORTS: Final = 1000
MAX_BYTES: Final = 1 << 20


class KeptReports:
    """The reports of one run, bounded in number and in bytes.

    Where there is no room, every second one of the older half goes, but never the best or the newest: what the run
    reached is told however long nobody listened, only in coarser steps.

    Args:
        metric: What counts as good.
        less_is_better: Whether the best is the smallest.
        limit: How many are kept, at least 2.
        limit_bytes: How many bytes they may have together; the best and the newest are kept even so.
    """

    def __init__(
        self, metric: str = "", *, less_is_better: bool = False, limit: int = MAX_REPORTS, limit_bytes: int = MAX_BYTES
    ) -> None:
        self._metric = metric
        self._sign = -1.0 if less_is_better else 1.0
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._kept: list[nodes_pb2.Progress] = []
        self._best: nodes_pb2.Progress | None = None
        self._bytes = 0

    def __iter__(self) -> Iterator[nodes_pb2.Progress]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """What they have together, as sent."""
        return self._bytes

    def add(self, progress: nodes_pb2.Progress) -> None:
        """Keep a report; its sequence is larger than that of the one before."""
        self._kept.append(progress)
        self._bytes += progress.ByteSize()
        if self._best is None or self._value(progress) > self._value(self._best):
            self._best = progress
        while len(self._kept) > self._limit or self._bytes > self._limit_bytes:
            if not self._thin():
                return

    def after(self, sequence: int) -> nodes_pb2.Progress | None:
        """The first one with a larger sequence, or None."""
        index = bisect_right(self._kept, sequence, key=lambda progress: progress.sequence)
        return self._kept[index] if index < len(self._kept) else None

    def _thin(self) -> bool:
        """Drop some; returns whether any could go."""
        older = max(1, len(self._kept) // 2)
        dropped = {index for index in range(0, older, 2) if self._kept[index] is not self._best}
        if not dropped:  # the best one is the oldest
            dropped = {index for index in (1,) if index < len(self._kept) - 1}
        self._bytes -= sum(self._kept[index].ByteSize() for index in dropped)
        self._kept = [each for index, each in enumerate(self._kept) if index not in dropped]
        return bool(dropped)

    def _value(self, progress: nodes_pb2.Progress) -> float:
        value = progress.metrics.get(self._metric, math.nan)
        return -math.inf if math.isnan(value) else self._sign * value
