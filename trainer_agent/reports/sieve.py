"""Which reports of a script go on to the broker, and when. Pure: the time is an argument.

A script may report as often as it likes. A report that says something that the job's life depends on goes on at once.
Of the others, when they come faster than the broker shall store them, the best and the latest of each moment go on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tiercel.trainer_agent.reports.token_bucket import TokenBucket
from tiercel.v1 import trainer_pb2

REPORTS_PER_SECOND: Final = 20.0
REPORTS_AT_ONCE: Final = 200.0
BYTES_PER_SECOND: Final = 1024 * 1024 / 60
BYTES_AT_ONCE: Final = 256.0 * 1024


@dataclass(frozen=True, slots=True)
class Goal:
    """What the reports of a run are about."""

    metric: str  # the metric of its tiers
    smaller_is_better: bool  # whether it is one to minimise
    targets: tuple[float, ...]  # of the tiers

    def merit(self, metrics: Iterable[tuple[str, float]]) -> float:
        """The metric, negated where less is better; NaN where there is none."""
        value = dict(metrics).get(self.metric, math.nan)
        return -value if self.smaller_is_better else value


class Milestones:
    """Tells the reports that must not get lost: the first to reach a target, and the first that fails the job."""

    def __init__(self, goal: Goal) -> None:
        sign = -1.0 if goal.smaller_is_better else 1.0
        self._open = {sign * target for target in goal.targets}
        self._failed = False

    def note(self, merit: float) -> bool:
        """Take in a report by its merit, see :meth:`Goal.merit`, and say whether it is one of them."""
        if not math.isfinite(merit):  # the broker ends the job at the first of these
            first, self._failed = not self._failed, True
            return first
        reached = {target for target in self._open if merit >= target}
        self._open -= reached
        return bool(reached)


class ReportSieve:
    """Reports in, reports for the broker out, in the order of their numbers; bounded.

    Attributes:
        taken_in: How many reports came in.
    """

    def __init__(self, goal: Goal, now: float) -> None:
        self._goal = goal
        self._milestones = Milestones(goal)
        self._number = TokenBucket(REPORTS_PER_SECOND, REPORTS_AT_ONCE, now)
        self._bytes = TokenBucket(BYTES_PER_SECOND, BYTES_AT_ONCE, now)
        self._best: trainer_pb2.TrainerReport | None = None
        self._latest: trainer_pb2.TrainerReport | None = None
        self._has_ended = False
        self.taken_in = 0
        self._passed_on = 0

    @property
    def left_out(self) -> int:
        """How many reports gave way to a better and a later one."""
        return self.taken_in - self._passed_on - len(self._waiting())

    def ingest(self, report: trainer_pb2.TrainerReport, now: float) -> list[trainer_pb2.TrainerReport]:
        """Take in a report, and say which ones go on now."""
        self.taken_in += 1
        self._latest = report
        if self._best is None or self._is_better(report, self._best):
            self._best = report
        must_not_wait = self._milestones.note(self._merit(report)) or (report.ended and not self._has_ended)
        self._has_ended = self._has_ended or report.ended
        return self.release(now, at_once=must_not_wait)

    def release(self, now: float, *, at_once: bool = False) -> list[trainer_pb2.TrainerReport]:
        """What goes on now of that which waits; all of it if it has to go ``at_once``."""
        if not (at_once or self.seconds_until_due(now) == 0.0):
            return []
        released = self._waiting()
        self._best = self._latest = None
        self._passed_on += len(released)
        self._number.take(len(released), now)
        self._bytes.take(sum(report.ByteSize() for report in released), now)
        return released

    def seconds_until_due(self, now: float) -> float | None:
        """When :meth:`release` has something: in so many seconds, or None while nothing waits."""
        if self._latest is None:
            return None
        return max(self._number.seconds_until_room(now), self._bytes.seconds_until_room(now))

    def _waiting(self) -> list[trainer_pb2.TrainerReport]:
        if self._best is None or self._latest is None:
            return []
        return [self._latest] if self._best is self._latest else [self._best, self._latest]

    def _is_better(self, report: trainer_pb2.TrainerReport, other: trainer_pb2.TrainerReport) -> bool:
        return self._merit(report) > self._merit(other) or math.isnan(self._merit(other))

    def _merit(self, report: trainer_pb2.TrainerReport) -> float:
        return self._goal.merit(report.metrics.items())
