"""Step "rank" of the utility policy: a job as it competes for its node, and the order that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.speed import Needs
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.core.jobs import TierStatus

# What applications have of a tier is told from this part of the value of a first tier on.
_WORTH_TELLING = 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job in the queue of its node."""

    job: JobView  # the job
    record: JobRecord  # what is held of it
    status: TierStatus | None  # its next tier, or None when it has reached all
    cores: float  # cores that it can use
    priority: float = 0.0  # value per CPU second of working on it
    # The moment for the sake of which it goes before others that are worth more, when it or a job due later must be
    # over (seconds since the Unix epoch); else infinite.
    overdue_for: float = math.inf
    needs: Needs | None = None  # what it needs of CPU and accelerators, or None for a job that uses none
    delivering: TierStatus | None = None  # its tier whose model it is handing over, if there is one
    priority_to_tenant: float = 0.0  # the same if nobody asked its endpoint
    # What its next tier is worth to applications that ask its endpoint already, beside its own value.
    traffic_value: float = 0.0
    is_worth_finishing: bool = False  # whether it is worth more for being over soon than for its next tier

    def holds(self, record: JobRecord, traffic_value: float) -> bool:
        """Whether it would be found the same again.

        That is so while nothing new is held of the job and of who asks its endpoint, and time alone changes nothing.
        """
        timeless = self.status is None or self.status.tier.deadline_seconds is None
        return self.record is record and timeless and not self.is_late and self.traffic_value == traffic_value

    @property
    def is_late(self) -> bool:
        """Whether it goes first since it would be over too late."""
        return self.overdue_for < math.inf

    @property
    def is_asked(self) -> bool:
        """Whether applications that ask its endpoint already would notice its next tier."""
        return self.traffic_value >= _WORTH_TELLING

    @property
    def is_hopeless(self) -> bool:
        """Whether nobody has anything of its work: its next tier is out of reach, and it has no model to hand over."""
        return bool(self.record.unreachable) and self.delivering is None

    @property
    def rank(self) -> tuple[bool, float, float, float, str]:
        """Smaller comes first: late ones, then by worth, and those of whose work nobody has anything at the end."""
        return (self.is_hopeless, self.overdue_for, -self.priority, self.job.submitted_at, self.job.id)
