"""Whether a job's next tier is still within reach.

None of the papers has a rule for a target that a job will never meet, and without one a hopeless job, always in
front, would starve everybody. So a job is judged, only ever on reports it has not been judged on before:
a job that is starved or has just started says nothing new, and is left alone. Several verdicts in a row, each on fresh
reports, put the tier out of reach. It comes back as soon as a report is better than was held possible, or when as many
verdicts in a row find nothing against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.forecast.curve import Curve, curve_of, fit_line, fit_plateau
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.tiers import next_tier, reached_tiers
from tiercel.core.figures import number
from tiercel.core.jobs import Observation, TierState

_Mark = tuple[float, int]
# Progress has resumed when a report covers this part of the way from the best thought possible to the target.
_RESUMED = 0.1


@dataclass(frozen=True, slots=True)
class ReachSettings:
    """When a target counts as out of reach."""

    # A job has stalled when it improves per CPU second by less than this fraction of its own average so far (the
    # scale-free form of FlowCon's threshold; Zheng et al., 2019).
    alpha: float = 0.1
    min_reports: int = 8  # a job with fewer reports is never judged
    fresh_reports: int = 3  # a verdict needs so many reports that no earlier verdict has seen
    verdicts: int = 3  # so many verdicts in a row change what is held of a tier
    noise_margin: float = 3.0  # a target closer than so many standard deviations of the noise is within reach


@dataclass(frozen=True, slots=True)
class ReachRecord:
    """What is remembered about a job."""

    job_id: str  # the job
    reached: int = 0  # how many tiers it had reached; the record is void once that changes
    judged: _Mark | None = None  # time and epoch of the newest report that a verdict has seen, or None
    streak: int = 0  # verdicts in a row that contradict what is held of the next tier
    unreachable: str = ""  # why its next tier is out of reach, or empty while it is not
    possible: float | None = None  # best metric that was held possible when the tier went out of reach, or None


def record_of(job: JobView, earlier: ReachRecord | None) -> ReachRecord:
    """The job's record: the earlier one while it holds, else what the job's own tiers still tell of it."""
    reached = reached_tiers(job)
    if earlier is not None and earlier.reached == reached:
        return earlier
    tier = next_tier(job)
    if earlier is None and tier is not None and tier.state is TierState.UNREACHABLE:
        reason = tier.reason or f"tier {tier.number} (target {number(tier.tier.target)}) was out of reach before"
        return ReachRecord(job_id=job.id, reached=reached, judged=_newest(job), unreachable=reason)
    return ReachRecord(job_id=job.id, reached=reached)


def judge(job: JobView, record: ReachRecord, settings: ReachSettings) -> ReachRecord:
    """The record after a look at the reports that are new since the last verdict."""
    tier = next_tier(job)
    fresh = [seen for seen in job.observations if record.judged is None or _mark(seen) > record.judged]
    if tier is None or not fresh:
        return record
    if _beats_the_possible(job, record, fresh):
        return ReachRecord(job_id=job.id, reached=record.reached, judged=_newest(job))
    if len(fresh) < settings.fresh_reports or len(job.observations) < settings.min_reports:
        return record
    record = replace(record, judged=_newest(job))
    evidence = find_evidence(curve_of(job.observations, job.direction, tier.tier.target), settings)
    if (evidence is None) is (not record.unreachable):
        return replace(record, streak=0)
    if record.streak + 1 < settings.verdicts:
        return replace(record, streak=record.streak + 1)
    if evidence is None:
        return replace(record, streak=0, unreachable="", possible=None)
    words = f"tier {tier.number} (target {number(tier.tier.target)}) looks out of reach: {evidence.words}"
    return replace(record, streak=0, unreachable=words, possible=evidence.possible)


def _beats_the_possible(job: JobView, record: ReachRecord, fresh: Sequence[Observation]) -> bool:
    """Whether a job out of reach made progress that it was thought unable to make."""
    tier = next_tier(job)
    if tier is None or not record.unreachable or record.possible is None:
        return False
    resumed = record.possible + _RESUMED * (tier.tier.target - record.possible)
    return any(job.direction.reaches(seen.value, resumed) for seen in fresh)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a target looks out of reach."""

    words: str  # the finding, as the end of a sentence for the tenant
    possible: float  # best metric that is held possible


def find_evidence(curve: Curve, settings: ReachSettings) -> Evidence | None:
    """What in the reports speaks against reaching the target; None while it may be reached."""
    if len(curve.quality) < settings.min_reports:
        return None
    return _levels_off(curve, settings) or _has_stalled(curve, settings)


def _levels_off(curve: Curve, settings: ReachSettings) -> Evidence | None:
    """The fitted curve, at its most optimistic, ends below the target by more than noise."""
    plateau = fit_plateau(curve)
    if plateau is None:
        return None
    possible = plateau.level + settings.noise_margin * plateau.noise
    if not possible < curve.target:
        return None
    return Evidence(f"its reports level off near {number(curve.metric(plateau.level))}", curve.metric(possible))


def _has_stalled(curve: Curve, settings: ReachSettings) -> Evidence | None:
    """It all but stopped improving, and as much CPU time again as it has had would not close the gap."""
    line = fit_line(curve, last=max(settings.min_reports, len(curve.quality) // 2))
    used = curve.spent[-1]
    if line is None or used <= 0:
        return None
    fastest = line.slope + 2 * line.slope_error
    usual = (max(curve.quality) - curve.quality[0]) / used
    possible = max(curve.quality) + settings.noise_margin * line.noise
    if not (possible < curve.target and fastest < settings.alpha * usual and fastest * used < curve.gap):
        return None
    return Evidence(f"it has hardly improved since {number(curve.metric(max(curve.quality)))}", curve.metric(possible))


def _mark(seen: Observation) -> _Mark:
    return (seen.at, seen.epoch)


def _newest(job: JobView) -> _Mark | None:
    return max(map(_mark, job.observations), default=None)
