"""Tiers: targets on a job's metric, and what became of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tiercel.core.fields import NOT_TOLD


@dataclass(frozen=True, slots=True)
class Tier:
    """One target on the metric.

    Attributes:
        target: Metric value that reaches this tier.
        value: What this tier is worth, relative to other tiers.
        deadline_seconds: The tenant wants it within so many seconds after submission. None: no deadline.
        hard: Whether the broker admits the job only if it expects the tier in time.
    """

    target: float
    value: float = 1.0
    deadline_seconds: float | None = None
    hard: bool = False


class TierState(enum.Enum):
    """Where a tier of a job is."""

    PENDING = "pending"
    UNREACHABLE = "unreachable"
    REACHED = "reached"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TierStatus:
    """A tier and what became of it.

    Attributes:
        number: 1 for the first tier.
        tier: The target.
        state: Where it is.
        reached_value: Metric that the script reported when the tier was reached, or None.
        delivered_value: Metric re-measured on the exported model, or None.
        reached_seconds: Seconds from submission to the report that reached it, or None.
        delivered_seconds: Seconds from submission to the first moment the version answered, or None.
        version: Version of the endpoint that the tier became, or None.
        reason: Plain words when it failed or cannot be reached, or when its version was delivered and does not answer.
        failed_deliveries: How often its model could not be delivered before the job was resumed.
    """

    number: int
    tier: Tier
    state: TierState = TierState.PENDING
    reached_value: float | None = None
    delivered_value: float | None = None
    reached_seconds: float | None = None
    delivered_seconds: float | None = None
    version: int | None = None
    reason: str = ""
    failed_deliveries: int = field(default=0, metadata=NOT_TOLD)

    @property
    def target(self) -> float:
        """Metric value that reaches it."""
        return self.tier.target

    @property
    def value(self) -> float:
        """What reaching it is worth, relative to other tiers."""
        return self.tier.value

    @property
    def deadline_seconds(self) -> float | None:
        """Seconds after submission by which the tenant wants it, or None."""
        return self.tier.deadline_seconds
