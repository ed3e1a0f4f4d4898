"""SpeCon's master: which job to send to another node, if any (a reconstruction; Mao et al., 2021).

Moving a converged job from a node with many fast learners to one with few relieves the former. The authors' trace shows
a decision every 30 s, at most one move each, and no job moved twice; the rule that picks job and node is ours.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.feasible import Room
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.broker.scheduling.rank import submission_order
from tiercel.broker.scheduling.specon.readings import Category, Reading
from tiercel.broker.scheduling.specon.remaining import remaining_seconds


class SpeconRule(enum.Enum):
    """What counts first in a move, the other settling ties: fast learners relieved, or jobs on the two nodes."""

    GROWTH = "growth"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """When a move is worth it.

    Attributes:
        rule: What counts first.
        least_difference: By how much the two nodes must differ in that; 2, as 1 would only swap the imbalance.
        cooldown_seconds: A job that was moved stays at least that long.
        max_migrations: How often a job is moved at most; 0 for any number.
        migration_seconds: What a move costs the job.
        kappa: A job moves only if it has more work left than so many times that cost.
    """

    rule: SpeconRule
    least_difference: int
    cooldown_seconds: float
    max_migrations: int
    migration_seconds: float
    kappa: float


@dataclass(frozen=True, slots=True)
class Move:
    """A job to send to another node.

    Attributes:
        job: The job.
        source: Where it is.
        target: Where it goes.
        fast: How many fast learners there are on each of the two.
        jobs: How many jobs there are on each of the two.
    """

    job: JobView
    source: str
    target: str
    fast: tuple[int, int]
    jobs: tuple[int, int]

    @property
    def differences(self) -> tuple[int, int]:
        """Fast learners relieved minus disturbed, and the same of all jobs."""
        return self.fast[0] - self.fast[1], self.jobs[0] - self.jobs[1]

    @property
    def reason(self) -> str:
        """Why, for its tenant."""
        there = f"there it held up {self.fast[0]} of {self.jobs[0]} jobs that do, here {self.fast[1]} of {self.jobs[1]}"
        return f"moved from {self.source} to {self.target} because it hardly improves any more: {there}"


@dataclass(slots=True)
class _Crowd:
    """A node and its jobs; local to one call of :func:`choose_move`."""

    room: Room
    fast: int

    @property
    def node(self) -> NodeView:
        return self.room.node

    @property
    def jobs(self) -> Sequence[JobView]:
        return self.room.jobs

    def rank(self, rule: SpeconRule) -> tuple[int, int]:
        both = (self.fast, len(self.jobs))
        return both if rule is SpeconRule.GROWTH else both[::-1]


def choose_move(
    nodes: Sequence[NodeView],
    jobs_of: Mapping[str, Sequence[JobView]],
    readings: Mapping[str, Reading],
    settings: MoveSettings,
    now: float,
) -> Move | None:
    """The move that helps most, or None while none helps enough.

    Args:
        nodes: Nodes online.
        jobs_of: Jobs of each node that has any.
        readings: What is known of each job, by id.
        settings: When a move is worth it.
        now: Seconds since the Unix epoch.
    """
    crowds = sorted(
        (_crowd(node, jobs_of.get(node.id, ()), readings) for node in nodes),
        key=lambda crowd: (crowd.rank(settings.rule), crowd.node.id),
    )
    best = None
    for source in crowds:
        for job in _may_move(source, readings, settings, now):
            move = _best_target(job, source, crowds, settings)
            if move is not None and (best is None or _preference(move, settings) > _preference(best, settings)):
                best = move
    return best


def _crowd(node: NodeView, jobs: Sequence[JobView], readings: Mapping[str, Reading]) -> _Crowd:
    fast = sum(readings[job.id].category is not Category.CONVERGED for job in jobs)
    return _Crowd(Room.beside(node, jobs), fast)


def _may_move(crowd: _Crowd, readings: Mapping[str, Reading], settings: MoveSettings, now: float) -> Iterator[JobView]:
    """Converged jobs of a node, the oldest first, that may be moved and are worth it."""
    for job in sorted(crowd.jobs, key=submission_order):
        reading = readings[job.id]
        if not job.migratable or reading.category is not Category.CONVERGED:
            continue
        if settings.max_migrations and job.migrations >= settings.max_migrations:
            continue
        if job.migrated_at is not None and now - job.migrated_at < settings.cooldown_seconds:
            continue
        left = remaining_seconds(job, reading.growth)
        if left is None or left > settings.kappa * settings.migration_seconds:
            yield job


def _best_target(job: JobView, source: _Crowd, crowds: Sequence[_Crowd], settings: MoveSettings) -> Move | None:
    """The first node with room in the order given, which is that of what counts, if it differs by enough."""
    rank = source.rank(settings.rule)[0]
    for target in crowds:
        if rank - target.rank(settings.rule)[0] < settings.least_difference:
            return None
        if target is not source and target.room.can_take(job):
            fast, jobs = (source.fast, target.fast), (len(source.jobs), len(target.jobs))
            return Move(job, source.node.id, target.node.id, fast, jobs)
    return None


def _preference(move: Move, settings: MoveSettings) -> tuple[int, int]:
    """Larger is better."""
    return move.differences if settings.rule is SpeconRule.GROWTH else move.differences[::-1]
