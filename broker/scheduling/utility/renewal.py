"""What is held of jobs under the utility policy, renewed with their news: the forecasts first that have aged most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import attrgetter, itemgetter

from tiercel.broker.scheduling.forecast.work import Forecast, PastCurve, past_curves
from tiercel.broker.scheduling.interface import JobView, PastRun, Snapshot
from tiercel.broker.scheduling.tiers import reached_tiers
from tiercel.broker.scheduling.utility.forecast import (
    JobRecord,
    after_work,
    new_record,
    prior_of,
    renewed,
    spent_by,
    staleness,
)
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.jobs import Direction

# Works of jobs that reached their first tier under this policy: a prior for programs that never ran before.
_SAMPLES_KEPT = 64
# Programs whose earlier runs say what one needs that never ran before.
_MOST_SAMPLES = 32


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of jobs between passes.

    Attributes:
        records: By job.
        views: Jobs as they were seen last: one that is the same object has no news.
        waiting: Jobs whose forecasts are to be renewed and had to wait for the next pass, and by what fraction the
            work behind these had grown, negative.
        samples: CPU seconds that jobs needed to their first tier, the latest last.
        prior: What follows from them for jobs of which nothing is known; None when it has to be worked out anew.
    """

    records: Mapping[str, JobRecord] = field(default_factory=dict)
    views: Mapping[str, JobView] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    samples: tuple[float, ...] = ()
    prior: Forecast | None = None


@dataclass(slots=True)
class _NewRecords:
    """What new records brought; local to one pass."""

    records: dict[str, JobRecord] = field(default_factory=dict)
    learnt: list[float] = field(default_factory=list)
    postponed: dict[str, float] = field(default_factory=dict)
    fits: int = 0


def renew(snapshot: Snapshot, held: Held, settings: UtilitySettings) -> tuple[Held, set[str]]:
    """Renew what is held of all jobs.

    Returns:
        What is held of them now, and those of which something else is held than before.
    """
    prior = held.prior if held.prior is not None else _prior(snapshot, held, settings)
    learnt_since = prior is not held.prior
    views = {job.id: job for job in snapshot.jobs}
    records = {name: record for name, record in held.records.items() if name in views}
    waiting = {name: grown for name, grown in held.waiting.items() if name in views}
    changed: set[str] = set()
    fresh: list[JobView] = []
    for name, job in views.items():
        known, record = held.views.get(name), records.get(name)
        silent = known is not None and (known is job or _no_news(known, job))
        if silent and record is not None and not (learnt_since and record.rests_on_others):
            continue
        if record is None or record.stage != reached_tiers(job):
            fresh.append(job)
            waiting.pop(name, None)
            continue
        records[name] = after_work(job, record, prior)
        changed.add(name)
        grown = staleness(job, record)
        if name in waiting or (grown >= settings.refit_growth and record.stage < len(job.tiers)):
            waiting[name] = -grown
    made = _new_records(snapshot, held, prior, fresh, settings)
    records.update(made.records)
    changed.update(made.records)
    fits = max(settings.fits_per_pass - made.fits, 0)
    for name, _ in nsmallest(fits, waiting.items(), key=itemgetter(1, 0)):
        records[name] = renewed(views[name], records[name], prior, settings.forecasts)
        changed.add(name)
        del waiting[name]
    waiting.update(made.postponed)
    samples = (*held.samples, *made.learnt)[-_SAMPLES_KEPT:]
    return Held(records, views, waiting, samples, None if made.learnt else prior), changed


def _new_records(
    snapshot: Snapshot, held: Held, prior: Forecast, jobs: Sequence[JobView], settings: UtilitySettings
) -> _NewRecords:
    """Records of jobs that are new or have reached a tier."""
    made = _NewRecords()
    curves: dict[tuple[str, Direction], tuple[PastCurve, ...]] = {}
    for job in sorted(jobs, key=attrgetter("id")):
        earlier = held.records.get(job.id)
        past: tuple[PastCurve, ...] = ()
        if earlier is not None:
            past = earlier.past
        elif settings.use_history and job.workload in snapshot.history:
            key = (job.workload, job.direction)
            if key not in curves:
                curves[key] = past_curves(snapshot.history[job.workload], job.direction)
            past = curves[key]
        fit = not job.observations or made.fits < settings.fits_per_pass
        made.fits += bool(job.observations) and fit
        record = new_record(job, earlier, past, prior, settings.forecasts, fit=fit)
        made.records[job.id] = record
        if not fit:
            made.postponed[job.id] = -staleness(job, record)
        if earlier is not None and earlier.stage == 0 and record.reached_spent > 0:
            made.learnt.append(record.reached_spent)
    return made


def _prior(snapshot: Snapshot, held: Held, settings: UtilitySettings) -> Forecast:
    """What is held of jobs of which nothing is known."""
    samples = held.samples or _samples_of(snapshot.history)
    unfinished = [spent_by(job) for job in snapshot.jobs if (known := held.records.get(job.id)) and known.stage == 0]
    return prior_of(samples, sorted(unfinished), settings.forecasts)


def _no_news(before: JobView, job: JobView) -> bool:
    """Whether nothing that counts has changed of a job; its share does not."""
    return (
        before.cpu_seconds == job.cpu_seconds
        and before.observations is job.observations
        and before.tiers is job.tiers
        and before.node_id == job.node_id
        and before.movable is job.movable
    )


def _samples_of(history: Mapping[str, tuple[PastRun, ...]]) -> tuple[float, ...]:
    """What programs needed to come nine tenths of their way: a prior for those that never ran before."""
    works: list[float] = []
    for workload in sorted(history)[:_MOST_SAMPLES]:
        run = history[workload][-1] if history[workload] else None
        if run is None or len(run.curve) < 2:
            continue
        first, last = run.curve[0].value, run.curve[-1].value
        goal = first + 0.9 * (last - first)
        works += [point.cpu_seconds for point in run.curve if (point.value - goal) * (last - first) >= 0][:1]
    return tuple(work for work in works if work > 0)
