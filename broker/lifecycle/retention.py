"""Which events, logs and files of jobs that are over are kept no longer; the same decides by itself and on request.

Nothing goes of a job that lives, nor of one that a version comes from which answers or may be chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tiercel.core.disk_use import Removal

EVENTS, LOGS, FILES, PROJECTS = "events", "logs", "files", "projects"
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long things of jobs that are over are kept; infinity for ever."""

    events_seconds: float = 365 * _DAY  # events, with the scheduler's decisions
    logs_seconds: float = 90 * _DAY  # output
    files_seconds: float = 365 * _DAY  # files that they left behind
    projects_seconds: float = 180 * _DAY  # projects that no younger job runs from
    # Of so many jobs of a tenant, those that ended last, all that is young enough; of others nothing.
    jobs: int = 10_000


@dataclass(frozen=True, slots=True)
class KeptOfJob:
    """What is kept of a job."""

    job_id: str  # the job
    tenant: str  # its owner
    finished_at: float | None  # when it was over, seconds since the Unix epoch; None while it lives
    counts: Mapping[str, int]  # how many there are, by what they are
    sizes: Mapping[str, int]  # what they take in bytes, likewise, as far as that is known
    project: str = ""  # SHA-256 of the project that it runs from, or empty


def to_remove(
    jobs: Iterable[KeptOfJob], needed: Collection[str], now: float, settings: RetentionSettings
) -> list[Removal]:
    """What is kept no longer, of the job that ended first at first.

    Args:
        jobs: What is kept of every job.
        needed: Jobs that something refers to.
        now: Seconds since the Unix epoch.
        settings: How long things are kept.
    """
    over = sorted(((job.finished_at, job) for job in jobs if job.finished_at is not None), key=_by_age)
    ages = {EVENTS: settings.events_seconds, LOGS: settings.logs_seconds, FILES: settings.files_seconds}
    later: defaultdict[str, int] = defaultdict(int)
    found: list[Removal] = []
    for finished_at, job in reversed(over):
        later[job.tenant] += 1
        if job.job_id in needed:
            continue
        too_many = later[job.tenant] > settings.jobs
        for what, seconds in reversed(ages.items()):
            too_old = now - finished_at >= seconds
            if job.counts.get(what) and (too_old or too_many):
                days = (now - finished_at) / _DAY
                reason = f"it was over {days:.0f} days ago" if too_old else f"{settings.jobs} jobs ended after it"
                size = job.sizes.get(what, 0)
                found.append(Removal(job.job_id, job.tenant, what, job.counts[what], size, reason))
    return found[::-1]


def needed_projects(
    jobs: Iterable[KeptOfJob], needed: Collection[str], now: float, settings: RetentionSettings
) -> dict[str, set[str]]:
    """The projects that are kept, by tenant.

    Args:
        jobs: What is kept of every job.
        needed: Jobs that something refers to.
        now: Seconds since the Unix epoch.
        settings: How long things are kept.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for job in jobs:
        is_young = job.finished_at is None or now - job.finished_at < settings.projects_seconds
        if job.project and (is_young or job.job_id in needed):
            found[job.tenant].add(job.project)
    return dict(found)


def _by_age(job: tuple[float, KeptOfJob]) -> tuple[float, str]:
    return job[0], job[1].job_id
