"""SpeCon-style scheduling: jobs that hardly improve make room, on another node (Mao et al., 2021).

A reconstruction, not a re-implementation: of SpeCon the parameters, the categories, a trace of migrations
and results are known, but neither how the threshold is applied nor which job is moved where. Three parts: the monitor
(:mod:`.specon.readings`), the master (:mod:`.specon.migration`), and the initial placement (:mod:`.specon.placement`).
On each node shares are equal, which is Docker's default and all that SpeCon leaves to the node.

With ``migrate=false`` the same placement runs without migrations: the other arm of a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tiercel.broker.scheduling.explain import equal_share
from tiercel.broker.scheduling.interface import Assignment, JobView, Plan, Snapshot
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.broker.scheduling.specon.migration import Migration, MigrationSettings, SpeconRule, choose_migration
from tiercel.broker.scheduling.specon.placement import SpeconPlacement, parse_given, preference_of
from tiercel.broker.scheduling.specon.readings import MonitorSettings, Reading, SpeconGrowth, SpeconUnit, read
from tiercel.core.shares import Share

_UNREAD = Reading()


@dataclass(frozen=True, slots=True)
class SpeconSettings:
    """How SpeCon-style scheduling behaves."""

    alpha: float = 0.1  # a growth below this is slow; published: 0.1
    interval: float = 10.0  # between two readings of a job, in ``unit``, >= 0; published: 10 s
    unit: SpeconUnit = SpeconUnit.SECONDS  # what the interval is counted in
    growth: SpeconGrowth = SpeconGrowth.RELATIVE  # what is compared with ``alpha``
    round_seconds: float = 30.0  # between two decisions about migrations; about 30 s in the authors' trace
    migrate: bool = True  # whether to migrate jobs at all
    rule: SpeconRule = SpeconRule.GROWTH  # what counts first in a migration
    least_difference: int = 2  # by how much two nodes must differ in that, >= 1
    cooldown_seconds: float = 120.0  # a job that was migrated stays at least that long
    max_migrations: int = 1  # how often a job is migrated at most, as once in the authors' trace; 0 for any number
    # What a migration is held to cost the job until stop and start of its program were measured.
    migration_seconds: float = 12.0
    # A job migrates only if it has more work left, in seconds, than so many times what a migration costs, where that is
    # known.
    kappa: float = 1.0
    placement: SpeconPlacement = SpeconPlacement.SPREAD  # where new jobs go
    seed: int = 0  # of the placement by lot
    given: str = ""  # of the placement ``given``: ``JOB=NODE,JOB=NODE`` by the jobs' names

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        counted = (self.alpha, self.interval, self.round_seconds, self.cooldown_seconds, self.max_migrations)
        if not all(number >= 0 for number in counted):
            msg = "alpha, interval, round_seconds, cooldown_seconds and max_migrations must be at least 0"
            raise ValueError(msg)
        if not (self.least_difference >= 1 and self.migration_seconds >= 0 and self.kappa >= 0):
            msg = "least_difference must be at least 1, migration_seconds and kappa at least 0"
            raise ValueError(msg)
        parse_given(self.given)

    @property
    def monitor(self) -> MonitorSettings:
        """The part about readings."""
        return MonitorSettings(self.alpha, self.interval, self.unit, self.growth)

    @property
    def migration(self) -> MigrationSettings:
        """The part about migrations."""
        return MigrationSettings(
            self.rule,
            self.least_difference,
            self.cooldown_seconds,
            self.max_migrations,
            self.migration_seconds,
            self.kappa,
        )


@dataclass(frozen=True, slots=True)
class SpeconState:
    """What is remembered between passes."""

    readings: Mapping[str, Reading] = field(default_factory=dict)  # what the monitor knows of each job, by id
    migrated: Mapping[str, Migration] = field(default_factory=dict)  # why each job that this policy migrated was, by id
    # When migrations were decided about last, seconds since the Unix epoch, or None before the first time.
    round_at: float | None = None


class SpeconPolicy:
    """Equal shares, and converged jobs sent away from fast learners; see the module's description."""

    name: str = "specon"
    settings_type = SpeconSettings

    def __init__(self, settings: SpeconSettings | None = None) -> None:
        self.settings = settings or SpeconSettings()
        self._given = parse_given(self.settings.given)

    def initial_state(self) -> SpeconState:
        """Nothing is known about any job."""
        return SpeconState()

    def plan(self, snapshot: Snapshot, state: SpeconState) -> tuple[Plan, SpeconState]:
        """Place new jobs, read all, migrate at most one, and share each node equally."""
        settings = self.settings
        preference = preference_of(settings.placement, now=snapshot.now, seed=settings.seed, given=self._given)
        placement = place(snapshot, preference)
        monitor = settings.monitor
        readings = {job.id: read(job, state.readings.get(job.id, _UNREAD), monitor) for job in snapshot.jobs}
        migrated = {job.id: state.migrated[job.id] for job in snapshot.jobs if job.id in state.migrated}
        state = SpeconState(readings, migrated, snapshot.now if state.round_at is None else state.round_at)
        jobs_of = jobs_by_node(snapshot, placement)
        if settings.migrate and self._round_is_due(snapshot, state):
            migration = choose_migration(snapshot, jobs_of, readings, settings.migration, placement.kept)
            state = replace(state, round_at=snapshot.now)
            if migration is not None:
                state = replace(state, migrated={**migrated, migration.job.id: migration})
                placement.node_of[migration.job.id] = migration.target
                jobs_of = jobs_by_node(snapshot, placement)
        assignments = tuple(
            Assignment(
                job.id, node_id, Share(1 / len(jobs), reason=_reason(job, node_id, len(jobs) - 1, state.migrated))
            )
            for node_id, jobs in jobs_of.items()
            for job in jobs
        )
        return Plan(assignments=assignments, waiting=placement.waiting), state

    def _round_is_due(self, snapshot: Snapshot, state: SpeconState) -> bool:
        return state.round_at is not None and snapshot.now - state.round_at >= self.settings.round_seconds


def _reason(job: JobView, node_id: str, others: int, migrated: Mapping[str, Migration]) -> str:
    share = equal_share(others)
    migration = migrated.get(job.id)
    return f"{migration.reason}; {share}" if migration is not None and migration.target == node_id else share
