"""SpeCon's master: which job to send to another node, if any (a reconstruction; Mao et al., 2021).

Moving a converged job from a node with many fast learners to one with few relieves the former. The authors' trace shows
a decision every 30 s, at most one migration each, and no job migrated twice; the rule that picks job and node is ours.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.feasible import Room
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot
from tiercel.broker.scheduling.rank import submission_order
from tiercel.broker.scheduling.specon.readings import Category, Reading
from tiercel.broker.scheduling.specon.remaining import remaining_seconds


class SpeconRule(enum.Enum):
    """What counts first in a migration, the other settling ties: fast learners relieved, or jobs on the two nodes."""

    GROWTH = "growth"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """When a migration is worth it."""

    rule: SpeconRule  # what counts first
    least_difference: int  # by how much the two nodes must differ in that; 2, as 1 would only swap the imbalance
    cooldown_seconds: float  # a job that was migrated stays at least that long
    max_migrations: int  # how often a job is migrated at most; 0 for any number
    migration_seconds: float  # what a migration is held to cost until it was measured
    kappa: float  # a job migrates only if it has more work left than so many times what a migration costs


@dataclass(frozen=True, slots=True)
class Migration:
    """A job to send to another node."""

    job: JobView  # the job
    source: str  # where it is
    target: str  # where it goes
    fast: tuple[int, int]  # how many fast learners there are on each of the two
    jobs: tuple[int, int]  # how many jobs there are on each of the two

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
    """A node and its jobs; local to one call of :func:`choose_migration`."""

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


def choose_migration(
    snapshot: Snapshot,
    jobs_of: Mapping[str, Sequence[JobView]],
    readings: Mapping[str, Reading],
    settings: MigrationSettings,
    kept: Mapping[str, JobView],
) -> Migration | None:
    """The migration that helps most, or None while none helps enough.

    Args:
        snapshot: What is seen.
        jobs_of: Jobs of each node that has any.
        readings: What is known of each job, by id.
        settings: When a migration is worth it.
        kept: By node, a job that waits for room there.
    """
    crowds = sorted(
        (_crowd(node, jobs_of.get(node.id, ()), readings, kept.get(node.id)) for node in snapshot.nodes),
        key=lambda crowd: (crowd.rank(settings.rule), crowd.node.id),
    )
    best = None
    for source in crowds:
        for job in _may_migrate(source, readings, settings, snapshot.now):
            migration = _best_target(job, source, crowds, settings)
            if migration is None or not _is_worth_it(migration, readings[job.id], snapshot, settings):
                continue
            if best is None or _preference(migration, settings) > _preference(best, settings):
                best = migration
    return best


def _crowd(
    node: NodeView, jobs: Sequence[JobView], readings: Mapping[str, Reading], kept_for: JobView | None
) -> _Crowd:
    fast = sum(readings[job.id].category is not Category.CONVERGED for job in jobs)
    return _Crowd(Room.beside(node, jobs, kept_for), fast)


def _may_migrate(
    crowd: _Crowd, readings: Mapping[str, Reading], settings: MigrationSettings, now: float
) -> Iterator[JobView]:
    """Converged jobs of a node, the oldest first, that may be migrated."""
    for job in sorted(crowd.jobs, key=submission_order):
        reading = readings[job.id]
        if not job.migratable or reading.category is not Category.CONVERGED:
            continue
        if settings.max_migrations and job.migrations >= settings.max_migrations:
            continue
        if job.migrated_at is not None and now - job.migrated_at < settings.cooldown_seconds:
            continue
        yield job


def _is_worth_it(migration: Migration, reading: Reading, snapshot: Snapshot, settings: MigrationSettings) -> bool:
    """Whether the job has enough left to do, as far as that is known."""
    left = remaining_seconds(migration.job, reading.growth)
    cost = snapshot.restart_seconds(migration.job, migration.target, prior=settings.migration_seconds)
    return left is None or left > settings.kappa * cost


def _best_target(
    job: JobView, source: _Crowd, crowds: Sequence[_Crowd], settings: MigrationSettings
) -> Migration | None:
    """The first node with room in the order given, which is that of what counts, if it differs by enough."""
    rank = source.rank(settings.rule)[0]
    for target in crowds:
        if rank - target.rank(settings.rule)[0] < settings.least_difference:
            return None
        if target is not source and target.room.can_take(job):
            fast, jobs = (source.fast, target.fast), (len(source.jobs), len(target.jobs))
            return Migration(job, source.node.id, target.node.id, fast, jobs)
    return None


def _preference(migration: Migration, settings: MigrationSettings) -> tuple[int, int]:
    """Larger is better."""
    return migration.differences if settings.rule is SpeconRule.GROWTH else migration.differences[::-1]
