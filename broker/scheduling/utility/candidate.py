"""A job as it competes for its node: what a CPU second of work on it is worth, and what its tenant is told of that.

A job is worth what its next tier brings for the work to it, or what its being over brings for the work to its end,
whichever is more. Being over counts a little: the tenant waits for it and its memory is held up, but nobody's model
gets better by it. Without that, jobs that had all their tiers waited for the last tier of the longest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.tiers import handing_over, next_tier
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.jobs import TierStatus

# What applications have of a tier is told from this part of the value of a first tier on.
_WORTH_TELLING = 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job in the queue of its node."""

    job: JobView  # the job
    record: JobRecord  # what is held of it
    status: TierStatus | None  # its next tier, or None when it has reached all
    delivering: TierStatus | None  # its tier whose model it is handing over, if there is one
    cores: float  # cores that it can use
    priority: float  # value per CPU second of working on it
    is_worth_finishing: bool  # whether it is worth more for being over soon than for its next tier
    # What its next tier is worth to applications that ask its endpoint already, beside its own value.
    traffic_value: float = 0.0
    # The moment for the sake of which it goes before others that are worth more, when it or a job due later must be
    # over (seconds since the Unix epoch); else infinite.
    overdue_for: float = math.inf

    @property
    def is_hopeless(self) -> bool:
        """Whether nobody has anything of its work: its next tier is out of reach, and it has no model to hand over."""
        return bool(self.record.unreachable) and self.delivering is None

    @property
    def rank(self) -> tuple[bool, bool, float, float, float, str]:
        """Smaller comes first: who hands over and late ones, then by worth, and the hopeless at the end."""
        late, worth = self.overdue_for, -self.priority
        return (self.is_hopeless, self.delivering is None, late, worth, self.job.submitted_at, self.job.id)


def candidate(
    job: JobView, record: JobRecord, most_cores: float, traffic_value: float, now: float, settings: UtilitySettings
) -> Candidate:
    """A job with its priority.

    Args:
        job: The job.
        record: What is held of it.
        most_cores: What there is for it at most.
        traffic_value: What its next tier is worth to applications that ask its endpoint already.
        now: Seconds since the Unix epoch.
        settings: Of the policy.
    """
    status = next_tier(job)
    cores = record.needs.cores if record.needs is not None else max(job.resources.cpu_cores, 1e-3)
    per_second = _rate(job, record, status, min(cores, most_cores), now, settings)
    value = status.tier.value * job.tenant_weight if status is not None else 0.0
    finishing = settings.finishing * job.tenant_weight / record.to_end
    of_tier = (value + traffic_value) * per_second
    return Candidate(
        job,
        record,
        status,
        handing_over(job, now, settings.handing_over_seconds),
        cores,
        max(of_tier, finishing),
        finishing > of_tier,
        traffic_value,
    )


def _rate(
    job: JobView, record: JobRecord, status: TierStatus | None, cores: float, now: float, settings: UtilitySettings
) -> float:
    """Chance per CPU second of the next tier, discounted like that, and more where its deadline can just be met."""
    if status is None:
        return 0.0
    rate = settings.later_tiers**record.stage * record.remaining.rate
    if status.tier.deadline_seconds is not None:
        left, needed = job.submitted_at + status.tier.deadline_seconds - now, record.remaining.expected / cores
        if left >= needed > 0:
            rate *= 1 + needed / left
    return rate


def sentence(entry: Candidate, position: int, ahead: int, weight: float) -> str:
    """Why a job has its weight, in one sentence that its tenant can read.

    Args:
        entry: The job.
        position: Jobs before it in the queue.
        ahead: Jobs that run in front.
        weight: Its weight.
    """
    if entry.is_hopeless:
        return f"{entry.record.unreachable}; goes on with {weight:.1%} of the node until it makes progress"
    if position < ahead and entry.delivering is not None:
        return f"hands over the model of its tier {entry.delivering.number} now; {weight:.0%} of the node"
    what = _forecast(entry)
    if position < ahead and entry.overdue_for < math.inf:
        return f"goes first so that it is not over later than it should be: {what}; {weight:.0%} of the node"
    if position < ahead:
        return f"runs now, worth most per {_scarce(entry)}: {what}; {weight:.0%} of the node"
    others = f"{position} other{'s' if position > 1 else ''}"
    return f"its turn comes after {others}: {what}; {weight:.2%} of the node till then"


def _scarce(entry: Candidate) -> str:
    """What the job competes for."""
    needs = entry.record.needs
    held_up_by_accelerator = needs is not None and needs.fraction > needs.cores / entry.job.resources.cpu_cores
    return "second of its accelerators" if held_up_by_accelerator else "CPU second"


def _forecast(entry: Candidate) -> str:
    record = entry.record
    if entry.status is None:
        return f"all its tiers are reached, over after about {_seconds(record.to_end)} more of CPU time"
    if entry.is_worth_finishing:
        return f"nearly over, after about {_seconds(record.to_end)} more of CPU time"
    if record.known is None:
        used = _seconds(entry.job.cpu_seconds)
        return f"tier {entry.status.number}, of which no earlier run tells; {used} of CPU time used so far"
    remaining, traffic = record.remaining, entry.traffic_value
    span = f"{_seconds(remaining.low)} to {_seconds(remaining.high)}"
    doubt = f", if ever ({1 - remaining.never:.0%})" if remaining.never >= 0.05 else ""
    asked = f"; to those who ask its endpoint worth {traffic:.2g} more" if traffic >= _WORTH_TELLING else ""
    by = "going by earlier runs of the same program"
    return f"tier {entry.status.number} in about {span} of CPU time{doubt}, {by}{asked}"


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"
