"""Why a job has its share under the utility policy, in one sentence that its tenant can read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tiercel.broker.scheduling.forecast.speed import Needs
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.utility.outlook import JobRecord
from tiercel.core.jobs import TierStatus

# What applications have of a tier is told from this part of the value of a first tier on.
_WORTH_TELLING = 0.1


@dataclass(frozen=True, slots=True)
class Standing:
    """A job in the line of its node.

    Attributes:
        job: The job.
        record: What is held of it.
        status: Its next tier, or None when it has reached all.
        cores: Cores that it can use.
        worth: Value per CPU second of working on it.
        worth_to_tenant: The same if nobody asked its endpoint.
        traffic_value: What its next tier is worth to applications that ask its endpoint already, beside its own value.
        hurried_for: The moment for the sake of which it goes before others that are worth more, when it or a job due
            later must be over (seconds since the Unix epoch); else infinite.
        in_front: Whether it ran in front when that was found.
        needs: What it needs of CPU and accelerators, or None for a job that uses none.
        delivering: Its tier whose model it is handing over, if there is one.
        is_worth_finishing: Whether it is worth more for being over soon than for its next tier.
    """

    job: JobView
    record: JobRecord
    status: TierStatus | None
    cores: float
    worth: float = 0.0
    hurried_for: float = math.inf
    in_front: bool = False
    needs: Needs | None = None
    delivering: TierStatus | None = None
    worth_to_tenant: float = 0.0
    traffic_value: float = 0.0
    is_worth_finishing: bool = False

    def holds(self, record: JobRecord, traffic_value: float, *, in_front: bool) -> bool:
        """Whether it would be found the same again.

        That is so while nothing new is held of the job and of who asks its endpoint, and time alone changes nothing.
        """
        timeless = self.status is None or self.status.tier.deadline_seconds is None
        return (
            self.record is record
            and self.in_front is in_front
            and timeless
            and not self.is_late
            and self.traffic_value == traffic_value
        )

    @property
    def is_late(self) -> bool:
        """Whether it goes first since it would be over too late."""
        return self.hurried_for < math.inf

    @property
    def is_asked(self) -> bool:
        """Whether applications that ask its endpoint already would notice its next tier."""
        return self.traffic_value >= _WORTH_TELLING

    @property
    def is_new(self) -> bool:
        """Whether it has not reported anything yet."""
        return not self.job.observations

    @property
    def is_hopeless(self) -> bool:
        """Whether nobody has anything of its work: its next tier is out of reach, and it has no model to hand over."""
        return bool(self.record.unreachable) and self.delivering is None

    @property
    def rank(self) -> tuple[bool, float, float, float, str]:
        """Smaller comes first: late ones, then by worth, and those of whose work nobody has anything at the end."""
        return (self.is_hopeless, self.hurried_for, -self.worth, self.job.submitted_at, self.job.id)


def sentence(standing: Standing, position: int, ahead: int, weight: float) -> str:
    """Why a job has its weight.

    Args:
        standing: The job.
        position: Jobs before it in line.
        ahead: Jobs that run in front.
        weight: Its weight.
    """
    if standing.is_hopeless:
        return f"{standing.record.unreachable}; goes on with {weight:.1%} of the node until it makes progress"
    what = _outlook(standing)
    if standing.is_late and position < ahead:
        return f"goes first so that it is not over later than it should be: {what}; {weight:.0%} of the node"
    if position < ahead and standing.delivering is not None:
        return f"hands over the model of its tier {standing.delivering.number} now; {weight:.0%} of the node"
    if position < ahead:
        return f"runs now, worth most per {_scarce(standing)}: {what}; {weight:.0%} of the node"
    others = f"{position} other{'s' if position > 1 else ''}"
    return f"its turn comes after {others}: {what}; {weight:.2%} of the node till then"


def _scarce(standing: Standing) -> str:
    """What the job competes for."""
    needs = standing.needs
    held_up_by_device = needs is not None and needs.fraction > needs.cores / standing.job.resources.cpu_cores
    return "second of its accelerators" if held_up_by_device else "CPU second"


def _outlook(standing: Standing) -> str:
    if standing.status is None:
        return f"all its tiers are reached, over after about {_seconds(standing.record.to_end)} more of CPU time"
    if standing.is_worth_finishing:
        return f"nearly over, after about {_seconds(standing.record.to_end)} more of CPU time"
    outlook, forecast = standing.record.outlook, standing.record.forecast
    span = f"{_seconds(outlook.low)} to {_seconds(outlook.high)}"
    doubt = f", if ever ({1 - outlook.never:.0%})" if outlook.never >= 0.05 else ""
    asked = f"; to those who ask its endpoint worth {standing.traffic_value:.2g} more" if standing.is_asked else ""
    return f"tier {standing.status.number} in about {span} of CPU time{doubt}, going by {forecast.source.value}{asked}"


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.2g} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"
