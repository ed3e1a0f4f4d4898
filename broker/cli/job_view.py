"""What a live view knows of a job, moved on by events: pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tiercel.broker.cli.output import clean, number
from tiercel.broker.client import (
    JobEvent,
    JobInfo,
    PriorityEvent,
    ProgressEvent,
    ShareEvent,
    StateEvent,
    TierEvent,
    TierStatus,
)
from tiercel.core.figures import percent
from tiercel.core.jobs import Direction, TierState


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """A job and where its metric began."""

    job: JobInfo  # as far as events have told
    first_value: float | None = None  # the first value of the metric that was seen, or None

    def after(self, event: JobEvent) -> WatchedJob:
        """The view after an event of this job."""
        job = self.job
        match event:
            case StateEvent(state=state, reason=reason):
                return dataclasses.replace(self, job=dataclasses.replace(job, state=state, reason=reason))
            case ProgressEvent(value=value):
                first = value if self.first_value is None else self.first_value
                best = value if job.best_value is None else job.spec.direction.better(job.best_value, value)
                progressed = dataclasses.replace(
                    job,
                    epoch=event.epoch,
                    latest_value=value,
                    best_value=best,
                    cpu_seconds=event.cpu_seconds,
                    accelerator_seconds=event.accelerator_seconds,
                )
                return WatchedJob(progressed, first)
            case TierEvent(tier=tier):
                tiers = tuple(tier if tier.number == old.number else old for old in job.tiers)
                return dataclasses.replace(self, job=dataclasses.replace(job, tiers=tiers))
            case ShareEvent(node_id=node_id, share=share):
                return dataclasses.replace(self, job=dataclasses.replace(job, node_id=node_id, share=share))
            case PriorityEvent(priority=priority):
                spec = dataclasses.replace(job.spec, priority=priority)
                return dataclasses.replace(self, job=dataclasses.replace(job, spec=spec))

    def fraction(self, tier: TierStatus) -> float:
        """How much of the way from the first value to a tier's target is done, in [0, 1]."""
        if tier.state in {TierState.REACHED, TierState.DELIVERED}:
            return 1.0
        first, best = self.first_value, self.job.best_value
        if best is None or first is None:
            return 0.0
        sign = 1.0 if self.job.spec.direction is Direction.MAX else -1.0
        way, done = sign * (tier.target - first), sign * (best - first)
        return 1.0 if way <= 0 else min(1.0, max(0.0, done / way))


def event_line(event: JobEvent, name: str) -> str:
    """An event as a line of text."""
    head = f"{event.at.astimezone():%H:%M:%S}  {event.job_id}  {clean(name)}  "
    match event:
        case StateEvent():
            return head + event.state.value + (f": {clean(event.reason)}" if event.reason else "")
        case ProgressEvent():
            return f"{head}epoch {event.epoch}: {number(event.value)}"
        case TierEvent(tier=tier):
            version = f" as version {tier.version}" if tier.version else ""
            reason = f": {clean(tier.reason)}" if tier.reason else ""
            return f"{head}tier {tier.number} ({number(tier.target)}) {tier.state.value}{version}{reason}"
        case ShareEvent():
            return f"{head}share {percent(event.share.cpu_weight)} of {event.node_id}: {clean(event.share.reason)}"
        case PriorityEvent():
            return f"{head}priority {event.priority}"
