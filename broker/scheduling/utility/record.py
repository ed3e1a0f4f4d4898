"""What the utility policy holds of each job between passes: the work to its next tier, and to its end.

Earlier runs of its program tell how much work is left. For one that never ran before, what other programs needed stands
in, and what has outlived all of those is held to need as long again: the Gittins index of that lies between first come,
first served where jobs are alike and least attained service where they are not. Fits to the beginning of a job's own
curve order jobs worse than that on most of what was recorded (``python -m benchmarks.principle``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from tiercel.broker.scheduling.forecast.curve import sign_of
from tiercel.broker.scheduling.forecast.pace import Speeds
from tiercel.broker.scheduling.forecast.reach import ReachRecord, ReachSettings, judge, record_of
from tiercel.broker.scheduling.forecast.speed import Needs, needs_of
from tiercel.broker.scheduling.forecast.work import (
    Forecast,
    PastCurve,
    Remaining,
    forecast_from_history,
    forecast_from_samples,
    has_levelled_off,
    past_curve,
    past_curves,
    remaining_after,
    work_of_all_epochs,
)
from tiercel.broker.scheduling.interface import CurvePoint, JobView, PastRun, Snapshot
from tiercel.broker.scheduling.tiers import next_tier, reached_tiers
from tiercel.core.jobs import Direction

# CPU seconds to a first tier while no job has got there yet.
_FIRST_GUESS = forecast_from_samples((5.0,), 1.0)
# What has outlived all that is known of others is as likely to last as long again, and so is what has outlived most.
_OUTLIVED = Forecast((), (), 0.0)
_WITH_AS_LONG_AGAIN = 2.0
_SAMPLES_KEPT = 64
_REACH = ReachSettings()
_MOST = 1e12
# What counts of a job; its share does not. Where these are the same objects as before, comparing costs next to nothing.
_news = attrgetter("cpu_seconds", "observations", "tiers", "node_id", "movable")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is held of a job."""

    job: JobView  # as it was when it last had news
    stage: int  # tiers that it has reached
    spent: float  # CPU seconds that it has used, of nodes in the mean
    past: tuple[PastCurve, ...]  # earlier runs of its program
    known: Forecast | None  # CPU seconds from its start to its next tier as earlier runs tell it, or None
    remaining: Remaining  # CPU seconds to its next tier
    to_end: float  # CPU seconds that it is expected to need until it is over, > 0
    reach: ReachRecord  # whether its next tier is within reach
    needs: Needs  # what it uses of CPU and accelerators

    @property
    def unreachable(self) -> str:
        """Why the next tier is out of reach, or empty."""
        return self.reach.unreachable

    @property
    def busy(self) -> float:
        """Seconds of accelerators that go with the work to its end, all of them together."""
        return self.to_end * self.needs.accelerator_per_cpu * self.job.resources.accelerators


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of jobs between passes."""

    records: Mapping[str, JobRecord] = field(default_factory=dict)  # by job
    samples: tuple[float, ...] = ()  # CPU seconds that jobs needed to their first tier, the latest last; bounded
    # What follows from them for jobs of which nothing is known; None when it has to be worked out anew.
    prior: Forecast | None = None


def renew(snapshot: Snapshot, held: Held, speeds: Speeds) -> Held:
    """What is held of all jobs now; of those without news the same record as before."""
    prior = held.prior if held.prior is not None else _prior(snapshot, held)
    records: dict[str, JobRecord] = {}
    learnt: list[float] = []
    curves: dict[tuple[str, tuple[str, ...], Direction], tuple[PastCurve, ...]] = {}
    for job in snapshot.jobs:
        before = held.records.get(job.id)
        told = before is not None and (before.known is not None or before.stage > 0)
        if before is not None and _news(before.job) == _news(job) and (told or prior is held.prior):
            records[job.id] = before
            continue
        key = (job.workload, job.similar, job.direction)
        if before is None and key not in curves:
            curves[key] = past_curves(snapshot.earlier_runs(job), job.direction)
        past = before.past if before is not None else curves[key]
        record = records[job.id] = record_after(job, before, past, prior, speeds.of(job.workload, job.node_id))
        if before is not None and before.stage == 0 < record.stage:
            learnt.append(max(record.spent, 1e-3))
    samples = (*held.samples, *learnt)[-_SAMPLES_KEPT:]
    return Held(records, samples, None if learnt else prior)


def _prior(snapshot: Snapshot, held: Held) -> Forecast:
    """The work to a first tier of jobs of which nothing is known: what others needed."""
    if not held.samples:
        return _FIRST_GUESS
    middle = sorted(held.samples)[len(held.samples) // 2]
    # Those not there yet count too where they have had more than most needed: else only the short ones would be known.
    # By what they have had now: what is held of them is from the pass before, which made first tiers 4 % later.
    longer = [
        _WITH_AS_LONG_AGAIN * min(job.cpu_seconds, _MOST)
        for job in snapshot.jobs
        if job.cpu_seconds > middle and (known := held.records.get(job.id)) and known.stage == 0
    ]
    needed = [*held.samples, *sorted(longer)]
    return forecast_from_samples(needed, 1.0 / math.sqrt(len(needed)))


def record_after(
    job: JobView, before: JobRecord | None, past: tuple[PastCurve, ...], prior: Forecast, speed: float = 1.0
) -> JobRecord:
    """What is held of a job after its news.

    Args:
        job: The job.
        before: What was held of it, or None.
        past: Earlier runs of its program.
        prior: The work to a first tier of jobs of which nothing is known.
        speed: Work that a CPU second of its node does for it: earlier runs told theirs of nodes in the mean.
    """
    stage, spent = reached_tiers(job), speed * (min(job.cpu_seconds, _MOST) if job.cpu_seconds > 0 else 0.0)
    known = before.known if before is not None and before.stage == stage else _known(job, stage, past)
    # To a later tier as much again as it has had, where nothing tells.
    remaining = remaining_after(known or (prior if stage == 0 else _OUTLIVED), spent)
    reach = record_of(job, before.reach if before is not None else None)
    if reach.unreachable or (known is None and _has_levelled_off(job)):
        reach = judge(job, reach, _REACH)
    most = work_of_all_epochs(job) * speed
    ended = max((curve.spent[-1] for curve in past), default=0.0)  # it says nothing once it goes on for longer
    most = min(most, ended) if ended > spent else most
    return JobRecord(
        job=job,
        stage=stage,
        spent=spent,
        past=past,
        known=known,
        remaining=remaining,
        to_end=max(_end_of(job, spent, remaining, past, most) - spent, 1e-3),
        reach=reach,
        needs=needs_of(job),
    )


def _known(job: JobView, tier: int, past: tuple[PastCurve, ...]) -> Forecast | None:
    """What earlier runs say of the work to a tier; None without any."""
    if tier >= len(job.tiers):
        return None
    return forecast_from_history(past, sign_of(job.direction) * job.tiers[tier].tier.target)


def _has_levelled_off(job: JobView) -> bool:
    status = next_tier(job)
    if status is None or len(job.observations) < _REACH.min_reports:
        return False
    points = tuple(CurvePoint(seen.cpu_seconds, seen.value) for seen in job.observations)
    curve = past_curve(PastRun(points), job.direction)
    return curve is not None and has_levelled_off(curve, sign_of(job.direction) * status.tier.target)


def _end_of(job: JobView, spent: float, remaining: Remaining, past: tuple[PastCurve, ...], most: float) -> float:
    """CPU seconds from the start after which the job will be over: at its last tier, or after all that it may do."""
    last = _known(job, len(job.tiers) - 1, past) if past and not job.continues else None
    to_last = remaining_after(last, spent) if last is not None else remaining
    ends_there = last is not None and to_last.never < 0.5
    return min(spent + to_last.expected, most) if ends_there or most == math.inf else most
