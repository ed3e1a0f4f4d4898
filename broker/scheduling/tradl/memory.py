"""What TRADL-style scheduling remembers of jobs and nodes, so that only those with news are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.forecast.curve import ReportsSeen, curve_of, growth, reports_seen
from tiercel.broker.scheduling.forecast.reach import ReachRecord, ReachSettings, judge, record_of
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.node_memory import NodeMemories
from tiercel.broker.scheduling.tiers import next_tier, reached_tiers


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a job is from its next tier."""

    gap: float  # from its best report to the target, as a fraction of ``scale``
    scale: float  # what the metric is divided by
    growth: float | None  # improvement per CPU second in units of ``scale``; None while unknown


@dataclass(frozen=True, slots=True)
class JobMemory:
    """What is known of a job. The same object as long as it has no news, so that nodes without news can be told."""

    record: ReachRecord  # whether its next tier is within reach
    # Number, time and epoch of the reports that all this is about; None without a report.
    seen: ReportsSeen | None = None
    judged: bool = False  # whether the record has taken these reports in
    measured: bool = False  # whether the distance is about these reports
    # How far it is from its next tier; None before it is measured, without a report and past the last tier.
    distance: Distance | None = None


@dataclass(frozen=True, slots=True)
class TradlState:
    """What is remembered between passes."""

    jobs: Mapping[str, JobMemory] = field(default_factory=dict)  # by job id
    nodes: NodeMemories = field(default_factory=dict)  # what was decided, by node id


def remember(job: JobView, earlier: JobMemory | None) -> JobMemory:
    """What is known of the job: ``earlier`` itself if there are no news."""
    seen = reports_seen(job.observations)
    if earlier is None:
        return JobMemory(record_of(job, None), seen)
    if earlier.record.reached != reached_tiers(job):
        return JobMemory(record_of(job, earlier.record), seen)
    return earlier if earlier.seen == seen else JobMemory(earlier.record, seen)


def judged(job: JobView, memory: JobMemory, settings: ReachSettings) -> JobMemory:
    """The memory after a look at whether the next tier is within reach; at most one look at the same reports."""
    if memory.judged:
        return memory
    record = judge(job, memory.record, settings)
    return JobMemory(record, memory.seen, judged=True, measured=memory.measured, distance=memory.distance)


def measured(job: JobView, memory: JobMemory, window: int, known_seconds: float | None = None) -> JobMemory:
    """The memory with the job's distance from its next tier.

    Args:
        job: The job.
        memory: What is known of it.
        window: See :func:`.growth`.
        known_seconds: CPU seconds to the tier as earlier runs tell it; the growth is then what gets it there by then.
    """
    if memory.measured:
        return memory
    distance = _distance(job, window, known_seconds)
    return JobMemory(memory.record, memory.seen, memory.judged, measured=True, distance=distance)


def _distance(job: JobView, window: int, known_seconds: float | None) -> Distance | None:
    tier = next_tier(job)
    if tier is None:
        return None
    curve = curve_of(job.observations, job.direction, tier.tier.target)
    if known_seconds is not None:
        gap, scale = (curve.gap, curve.scale) if curve.quality else (1.0, abs(tier.tier.target))
        return Distance(gap, scale, gap / max(known_seconds, 1e-3))
    return Distance(curve.gap, curve.scale, growth(curve, window)) if curve.quality else None
