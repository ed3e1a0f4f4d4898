"""What can be set of the utility policy."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.broker.scheduling.utility.migration import MigrationSettings
from tiercel.broker.scheduling.utility.serving import ServingSettings


@dataclass(frozen=True, slots=True)
class UtilitySettings:
    """How the utility policy behaves.

    Attributes:
        later_tiers: What each further tier counts relative to the one before, in (0, 1].
        finishing: What being over counts beside a first tier of value 1, > 0; less than a further tier, or those wait.
        floor: What all jobs that are not in front get together, a fraction of their node in (0, 1).
        urgency: What a deadline adds to a tier's worth when there is just enough time left, a factor >= 0.
        guard_ratio: Nobody shall need longer than this times what equal sharing would take; 0 switches that off.
        guard_margin: A job counts as late when it has less than this part of all its time to spare (or less than a
            second), >= 0.
        delivery_cpu_seconds: What handing over the model of a tier may take, CPU seconds, > 0; small models need a
            sixth of the default. A job keeps its place for it until it has used ten times as much.
        review_seconds: Fair shares and migrations are looked at when jobs come or go, else this often, >= 0.
        migrate: Whether running jobs may be sent to other nodes.
        migration_gain: A migration must gain this times what it costs, >= 1.
        cooldown_seconds: From one migration to the next, of a job as of the cluster, >= 0.
        max_migrations: Of one job; 0 for no limit.
        answers_per_value: See :class:`.ServingSettings`.
        window_seconds: See :class:`.ServingSettings`.
        headroom: See :class:`.ServingSettings`.
        training_floor: See :class:`.ServingSettings`.
    """

    later_tiers: float = 0.02
    finishing: float = 0.01
    floor: float = 0.01
    urgency: float = 1.0
    guard_ratio: float = 1.5
    guard_margin: float = 0.1
    delivery_cpu_seconds: float = 1.0
    review_seconds: float = 5.0
    migrate: bool = True
    migration_gain: float = 2.0
    cooldown_seconds: float = 10.0
    max_migrations: int = 3
    answers_per_value: float = ServingSettings().answers_per_value
    window_seconds: float = ServingSettings().window_seconds
    headroom: float = ServingSettings().headroom
    training_floor: float = ServingSettings().training_floor

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        if not (0 < self.floor < 1 and 0 < self.later_tiers <= 1 and 0 < self.training_floor < 1):
            msg = "floor, later_tiers and training_floor must be between 0 and 1"
            raise ValueError(msg)
        if min(self.migration_gain, self.headroom) < 1:
            msg = "migration_gain and headroom must be at least 1"
            raise ValueError(msg)
        least = (
            self.urgency,
            self.guard_ratio,
            self.guard_margin,
            self.review_seconds,
            self.window_seconds,
        )
        if min(*least, self.cooldown_seconds, self.max_migrations) < 0:
            msg = "no option may be negative"
            raise ValueError(msg)
        more_than_nothing = (self.answers_per_value, self.delivery_cpu_seconds)
        if min(*more_than_nothing, self.finishing) <= 0:
            msg = "answers_per_value, delivery_cpu_seconds and finishing must be more than 0"
            raise ValueError(msg)

    @property
    def serving(self) -> ServingSettings:
        """The part about endpoints."""
        return ServingSettings(self.answers_per_value, self.window_seconds, self.headroom, self.training_floor)

    @property
    def migration(self) -> MigrationSettings:
        """The part about migrations."""
        return MigrationSettings(self.migration_gain, self.cooldown_seconds, self.max_migrations)
