"""The one index: what a CPU second of work on a job is worth, and what its tenant is told of that.

A job is worth what its next tier brings, to those who ask its endpoint already too, times the best chance per CPU
second of reaching it (the Gittins index), or what its being over brings over the CPU seconds to its end, whichever is
more. Being over counts a little: the tenant waits for it and its memory is held up, but nobody's model gets better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tiercel.broker.scheduling.explain import in_queue
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.tiers import handing_over, next_tier
from tiercel.broker.scheduling.utility.record import JobRecord
from tiercel.broker.scheduling.utility.serving import Traffic
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.durations import in_words
from tiercel.core.figures import percent
from tiercel.core.jobs import TierStatus


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job as it competes for a node."""

    record: JobRecord  # the job and what is held of it
    status: TierStatus | None  # its next tier, or None when it has reached all
    delivering: TierStatus | None  # its tier whose model it is handing over, if there is one
    priority: float  # value per CPU second of working on it
    traffic_value: float  # what its next tier is worth to those who ask its endpoint already, beside its own value
    # The moment for the sake of which it goes before others that are worth more, when it or a job due later must be
    # over (seconds since the Unix epoch); else infinite.
    overdue_for: float

    @property
    def job(self) -> JobView:
        """The job."""
        return self.record.job

    @property
    def is_hopeless(self) -> bool:
        """Whether nobody has anything of its work: its next tier is out of reach, and it has no model to hand over."""
        return bool(self.record.unreachable) and self.delivering is None

    @property
    def is_timed(self) -> bool:
        """Whether its position may be another one without any news: a deadline comes nearer, a hand-over is over."""
        return self.delivering is not None or bool(self.status and self.status.tier.deadline_seconds)

    def rank(self, *, on_accelerators: bool = False) -> tuple[bool, bool, float, float, float, str]:
        """Smaller comes first: who hands over and late ones, then by worth, and the hopeless at the end.

        Worth is that of a CPU second, or, among jobs that compete for accelerators, of a second of these.
        """
        used = self.record.needs.accelerator_per_cpu * self.job.resources.accelerators if on_accelerators else 1.0
        order = (self.is_hopeless, self.delivering is None, self.overdue_for, -self.priority / used)
        return (*order, self.job.submitted_at, self.job.id)


def candidate(
    record: JobRecord,
    traffic: Traffic | None,
    most_cores: float,
    now: float,
    overdue_for: float,
    settings: UtilitySettings,
) -> Candidate:
    """A job with its priority.

    Args:
        record: What is held of it.
        traffic: How its endpoint is asked, if it is.
        most_cores: What there is for it at most.
        now: Seconds since the Unix epoch.
        overdue_for: See :class:`Candidate`.
        settings: Of the policy.
    """
    job, status, traffic_value = record.job, next_tier(record.job), 0.0
    priority = settings.finishing * job.tenant_weight / record.to_end
    if status is not None:
        worth = status.tier.value * job.tenant_weight * settings.later_tiers**record.stage
        traffic_value = traffic.gain(job, status.tier.target) if traffic is not None else 0.0
        worth = (worth + traffic_value) * record.remaining.rate
        if status.tier.deadline_seconds is not None:  # more where its deadline can just be met
            left = job.submitted_at + status.tier.deadline_seconds - now
            needed = record.remaining.expected / min(record.needs.cores, most_cores)
            worth *= 1 + needed / left if left >= needed > 0 else 1.0
        priority = max(worth, priority)
    delivering = handing_over(job, now, settings.handing_over_seconds)
    return Candidate(record, status, delivering, priority, traffic_value, overdue_for)


def sentence(entry: Candidate, position: int, front: int, weight: float) -> str:
    """Why a job has its weight, in one sentence that its tenant can read; see :func:`.explain.in_queue`."""
    if entry.is_hopeless:
        return f"{entry.record.unreachable}; goes on with {percent(weight)} of the node until it makes progress"
    if position < front and entry.delivering is not None:
        return in_queue(f"hands over the model of its tier {entry.delivering.number}", weight, position, front)
    is_late = entry.overdue_for < math.inf and position < front
    late = "goes first, as it would end too late otherwise; " if is_late else ""
    return in_queue(f"{late}{_forecast(entry)}", weight, position, front)


def _forecast(entry: Candidate) -> str:
    record, remaining = entry.record, entry.record.remaining
    if entry.status is None:
        return f"all its tiers are reached; it ends after about {_seconds(record.to_end)} more of CPU time"
    if record.known is None:
        used = f"; {_seconds(entry.job.cpu_seconds)} of CPU time used so far" if entry.job.cpu_seconds else ""
        return f"works for tier {entry.status.number}; no earlier run shows how long that takes{used}"
    span = f"{_seconds(remaining.low)} to {_seconds(remaining.high)}"
    doubt = f", if ever (a chance of {percent(1 - remaining.never)})" if remaining.never >= 0.05 else ""
    program = "a program like it" if any(curve.differs for curve in record.past) else "the same program"
    asked = (
        f"; to those who ask its endpoint worth {entry.traffic_value:.2g} more" if entry.traffic_value >= 0.1 else ""
    )
    return f"tier {entry.status.number} in about {span} of CPU time{doubt}, going by earlier runs of {program}{asked}"


def _seconds(value: float) -> str:
    return in_words(round(value)) if value >= 60 else f"{max(value, 0.1):.2g} s"
