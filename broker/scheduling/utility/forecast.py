"""What the utility policy holds of each job between passes: forecasts, and whether the next tier is within reach.

Forecasts are made anew only when the work behind them has grown by a tenth, and only so many in one pass, so that a
thousand jobs cost no more than the few that have news. In between they are looked at again, which is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.forecast.speed import Needs, needs_of
from tiercel.broker.scheduling.forecast.work import (
    MIN_POINTS,
    Forecast,
    PastCurve,
    Remaining,
    Source,
    forecast_from_curve,
    forecast_from_history,
    forecast_from_samples,
    mixed,
    remaining_after,
)
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.tiers import next_tier, reached_tiers
from tiercel.core.jobs import Direction, TierState, TierStatus

# From the work to one tier to that of the next, while nothing is known: small and large factors.
_NEXT_TIER_FACTORS = (1.3, 2.0, 3.5)
_REACH_MIN_REPORTS = 8


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """How forecasts are made.

    Attributes:
        prior_seconds: CPU seconds to a first tier while nothing at all is known, > 0; it hardly matters.
        prior_spread: Standard deviation of its logarithm, >= 0.
        refit_growth: A forecast is renewed when the work behind it has grown by this fraction, > 0.
        fits_per_pass: Forecasts renewed in one pass at most, >= 1; the others wait for the next one.
        doubt: A tier is out of reach when its forecast gives it at most this chance, in (0, 1).
        verdicts: So many forecasts in a row must say so, >= 1.
        use_history: Whether earlier runs of the same program count.
        use_curve: Whether a job's own curve counts for its first tier; for later ones it always does.
    """

    prior_seconds: float = 5.0
    prior_spread: float = 0.8
    refit_growth: float = 0.1
    fits_per_pass: int = 8
    doubt: float = 0.1
    verdicts: int = 3
    use_history: bool = True
    use_curve: bool = True


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is held of a job.

    Attributes:
        job_id: The job.
        stage: Tiers it had reached; the rest is made anew once that changes.
        forecast: Of the CPU seconds to its next tier.
        remaining: The forecast after ``seen_spent``.
        seen_spent: CPU seconds for which that was worked out.
        fitted_spent: CPU seconds at the report up to which the forecast was made.
        end: CPU seconds from the start after which the job is expected to be over.
        most: CPU seconds from the start after which it is over in any case, with its last epoch; infinite while the
            pace is not known.
        reached_spent: CPU seconds after which it reached its latest tier, 0 before the first.
        past: Earlier runs of the same program.
        streak: Forecasts in a row that contradict what is held of the next tier.
        unreachable: Why the next tier is out of reach, or empty.
        best: Best quality (larger is better) when the tier went out of reach.
        usable: Cores that it was seen to be able to use, at most what it asks for.
        front_since: When it last came to the front, or None while it is not there.
        needs: What it needs of CPU and accelerators, or None for a job that uses none.
    """

    job_id: str
    stage: int
    forecast: Forecast
    remaining: Remaining
    seen_spent: float
    fitted_spent: float
    end: float
    reached_spent: float
    past: tuple[PastCurve, ...]
    most: float = math.inf
    streak: int = 0
    unreachable: str = ""
    best: float = -math.inf
    usable: float = math.inf
    front_since: float | None = None
    needs: Needs | None = None

    @property
    def rests_on_others(self) -> bool:
        """Whether nothing is known but what other jobs needed to their first tier."""
        return self.stage == 0 and self.forecast.source is Source.PRIOR

    @property
    def to_end(self) -> float:
        """CPU seconds that the job is expected to need until it is over."""
        to_tier = self.remaining.expected if self.forecast.totals and not self.unreachable else 0.0
        to_last_epoch = self.most - self.seen_spent
        return max(min(max(self.end - self.seen_spent, to_tier), to_last_epoch), 1e-3)


def spent_by(job: JobView) -> float:
    """CPU seconds that a job has used, within what makes sense."""
    return min(job.cpu_seconds, 1e12) if job.cpu_seconds > 0 else 0.0


def staleness(job: JobView, record: JobRecord) -> float:
    """By what fraction the work behind a forecast has grown; 0 without a report since."""
    if not job.observations:
        return 0.0
    latest = job.observations[-1].cpu_seconds
    return (latest - record.fitted_spent) / max(record.fitted_spent, 1e-3) if latest > record.fitted_spent else 0.0


def after_work(job: JobView, record: JobRecord, prior: Forecast) -> JobRecord:
    """The record after the work that the job has done since, without any new forecast of its own.

    Args:
        job: The job.
        record: What was held of it.
        prior: What is held of jobs of which nothing is known.
    """
    spent = spent_by(job)
    if record.rests_on_others and record.forecast is not prior:
        needs = needs_of(job, record.usable)
        return replace(record, forecast=prior, remaining=remaining_after(prior, spent), seen_spent=spent, needs=needs)
    if abs(spent - record.seen_spent) <= 0.01 * record.remaining.expected:
        return record
    needs = needs_of(job, record.usable)
    return replace(record, remaining=remaining_after(record.forecast, spent), seen_spent=spent, needs=needs)


def new_record(
    job: JobView,
    earlier: JobRecord | None,
    past: tuple[PastCurve, ...],
    prior: Forecast,
    settings: ForecastSettings,
    *,
    fit: bool = True,
) -> JobRecord:
    """A record of a job that is new, or that has reached a tier.

    Args:
        job: The job.
        earlier: Its record before, or None.
        past: Earlier runs of the same program.
        prior: What is held of jobs of which nothing is known.
        settings: How forecasts are made.
        fit: Whether its own curve may be fitted now; else that is left for a later pass.
    """
    stage, spent = reached_tiers(job), spent_by(job)
    reached_spent = _spent_at_latest_tier(job, stage)
    forecast = _forecast(job, past, reached_spent, prior, settings, fit=fit)
    status = next_tier(job)
    told_before = ""
    if status is not None and status.state is TierState.UNREACHABLE:
        words = f"tier {status.number} (target {status.tier.target:.4g}) was out of reach before"
        told_before = status.reason or words
    return JobRecord(
        job_id=job.id,
        stage=stage,
        forecast=forecast,
        remaining=remaining_after(forecast, spent),
        seen_spent=spent,
        fitted_spent=job.observations[-1].cpu_seconds if job.observations and fit else 0.0,
        end=_end_of(job, past, forecast, fit=fit),
        most=_work_of_all_epochs(job),
        reached_spent=reached_spent,
        past=past,
        unreachable=told_before if earlier is None else "",
        best=_best_quality(job) if told_before else -math.inf,
        usable=earlier.usable if earlier is not None else job.resources.cpu_cores,
        front_since=earlier.front_since if earlier is not None else None,
        needs=needs_of(job, earlier.usable if earlier is not None else math.inf),
    )


def renewed(job: JobView, record: JobRecord, prior: Forecast, settings: ForecastSettings) -> JobRecord:
    """The record with a new forecast and whether the next tier is within reach."""
    forecast = _forecast(job, record.past, record.reached_spent, prior, settings, fit=True)
    record = replace(
        record,
        forecast=forecast,
        remaining=remaining_after(forecast, spent_by(job)),
        seen_spent=spent_by(job),
        fitted_spent=job.observations[-1].cpu_seconds,
        end=_end_of(job, record.past, forecast, fit=True),
        most=_work_of_all_epochs(job),
        usable=_usable_cores(job, record),
    )
    return _judged(job, replace(record, needs=needs_of(job, record.usable)), settings)


def _forecast(
    job: JobView,
    past: Sequence[PastCurve],
    reached_spent: float,
    prior: Forecast,
    settings: ForecastSettings,
    *,
    fit: bool,
) -> Forecast:
    status = next_tier(job)
    if status is None:
        return Forecast((), (), 1.0, Source.PRIOR)
    sign = 1.0 if job.direction is Direction.MAX else -1.0
    target = status.tier.target
    if past:
        best, at = _best_report(job)
        from_history = forecast_from_history(past, sign * target, at, best)
        if from_history is not None and not _outlived(from_history, spent_by(job)):
            return from_history
    if reached_spent > 0:
        prior = forecast_from_samples(_NEXT_TIER_FACTORS, 0.3, reached_spent)
    if not fit or len(job.observations) < MIN_POINTS or not (settings.use_curve or reached_spent > 0):
        return prior
    curve = forecast_from_curve(job.observations, job.direction, target, spent_by(job))
    if curve is None:
        return prior
    points = len(job.observations)
    return mixed(curve, prior, points / (points + 4.0)) if not _outlived(prior, spent_by(job)) else curve


def _outlived(forecast: Forecast, spent: float) -> bool:
    return not forecast.totals or spent > forecast.totals[-1]


def prior_of(samples: Sequence[float], unfinished: Sequence[float], settings: ForecastSettings) -> Forecast:
    """What is held of the work to a first tier of jobs of which nothing is known.

    Args:
        samples: CPU seconds that other jobs needed.
        unfinished: CPU seconds after which jobs that are there have not got there yet; those that have had more than
            most needed count too, or the prior would only know of the short ones.
        settings: How forecasts are made.
    """
    if not samples:
        return forecast_from_samples((settings.prior_seconds,), settings.prior_spread)
    middle = sorted(samples)[len(samples) // 2]
    longer = [1.5 * spent for spent in unfinished if spent > middle]
    known = [*samples, *longer]
    return forecast_from_samples(known, settings.prior_spread / math.sqrt(len(known)))


def _end_of(job: JobView, past: Sequence[PastCurve], forecast: Forecast, *, fit: bool) -> float:
    """CPU seconds from the start after which the job will be over: at its last tier, or after its last epoch."""
    spent = spent_by(job)
    most = _work_of_all_epochs(job)
    if job.continues or next_tier(job) is None:
        if most < math.inf:
            return most
        return max(max((curve.spent[-1] for curve in past), default=0.0), 2 * spent)
    last = job.tiers[-1].tier.target
    if reached_tiers(job) < len(job.tiers) - 1:
        best, at = _best_report(job)
        later = forecast_from_history(past, _quality(job.direction, last), at, best) if past else None
        if later is None and fit and len(job.observations) >= MIN_POINTS:
            later = forecast_from_curve(job.observations, job.direction, last, spent)
        if later is None:
            steps = len(job.tiers) - 1 - reached_tiers(job)
            return min(spent + remaining_after(forecast, spent).expected * 2.0**steps, most)
        forecast = later
    remaining = remaining_after(forecast, spent)
    total = spent + remaining.expected
    if math.isinf(most):
        return total
    return min((1 - remaining.never) * total + remaining.never * most, most)


def _work_of_all_epochs(job: JobView) -> float:
    """CPU seconds from the start to its last epoch; infinite while its pace is unknown."""
    if len(job.observations) < 2 or job.max_epochs <= 0:
        return math.inf
    first, last = job.observations[0], job.observations[-1]
    epochs = last.epoch - first.epoch
    if epochs <= 0 or last.cpu_seconds <= first.cpu_seconds:
        return math.inf
    pace = (last.cpu_seconds - first.cpu_seconds) / epochs
    return last.cpu_seconds + max(job.max_epochs - last.epoch, 0) * pace


def _judged(job: JobView, record: JobRecord, settings: ForecastSettings) -> JobRecord:
    """Whether the next tier is within reach, after a new forecast."""
    status = next_tier(job)
    if status is None:
        return record
    if record.unreachable:
        quality = _best_quality(job)
        gap = _quality(job.direction, status.tier.target) - record.best
        if quality > record.best + 0.1 * gap:
            return replace(record, streak=0, unreachable="", best=-math.inf)
        return record
    if len(job.observations) < _REACH_MIN_REPORTS or not _hopeless(job, status, record, settings):
        return record if record.streak == 0 else replace(record, streak=0)
    if record.streak + 1 < settings.verdicts:
        return replace(record, streak=record.streak + 1)
    words = (
        f"tier {status.number} (target {status.tier.target:.4g}) looks out of reach: the curve of "
        f"{len(job.observations)} reports levels off before it"
    )
    return replace(record, streak=0, unreachable=words, best=_best_quality(job))


def _hopeless(job: JobView, status: TierStatus, record: JobRecord, settings: ForecastSettings) -> bool:
    """Whether its curve, and a later half of reports less than a tenth of the gap nearer, say that it levels off."""
    quality = [_quality(job.direction, seen.value) for seen in job.observations if math.isfinite(seen.value)]
    if not quality:
        return False
    half = len(quality) // 2
    before, best = max(quality[:half], default=-math.inf), max(quality)
    gap = _quality(job.direction, status.tier.target) - best
    if best - before > 0.1 * gap:
        return False
    curve = forecast_from_curve(job.observations, job.direction, status.tier.target, spent_by(job))
    return curve is None or curve.never >= 1 - settings.doubt


def _usable_cores(job: JobView, record: JobRecord) -> float:
    """Cores that a job in front was seen to use, a little more to be safe; what it asks for while that is unknown."""
    asked = job.resources.cpu_cores
    if record.front_since is None:
        return record.usable
    seen = [report for report in job.observations[-8:] if report.at >= record.front_since]
    if len(seen) < 4 or seen[-1].at <= seen[0].at:
        return record.usable
    used = (seen[-1].cpu_seconds - seen[0].cpu_seconds) / (seen[-1].at - seen[0].at)
    return asked if used >= 0.7 * asked else max(1.2 * used, 0.1 * asked)


def _spent_at_latest_tier(job: JobView, stage: int) -> float:
    if stage == 0:
        return 0.0
    target = job.tiers[stage - 1].tier.target
    for seen in job.observations:
        if job.direction.reaches(seen.value, target):
            return min(max(seen.cpu_seconds, 1e-3), 1e12)
    return max(spent_by(job), 1e-3)


def _best_report(job: JobView) -> tuple[float | None, float]:
    """The best quality so far and the CPU seconds after which it was first reported."""
    best, at = -math.inf, 0.0
    for seen in job.observations:
        quality = _quality(job.direction, seen.value)
        if quality > best:
            best, at = quality, seen.cpu_seconds
    return (best, at) if math.isfinite(best) else (None, 0.0)


def _best_quality(job: JobView) -> float:
    return max((_quality(job.direction, seen.value) for seen in job.observations), default=-math.inf)


def _quality(direction: Direction, value: float) -> float:
    if not math.isfinite(value):
        return -math.inf
    return value if direction is Direction.MAX else -value
