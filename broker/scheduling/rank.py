"""Step "rank": in which order jobs go.

By submission, by how far they are among their tiers, and among those that are equally far by whatever a policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.tiers import handing_over, reached_tiers

ALL_REACHED = 1_000_000_000
"""The tiers of the stage of a job that has reached every one: behind all others."""


def submission_order(job: JobView) -> tuple[float, str]:
    """Key that sorts jobs by submission; the id settles ties."""
    return (job.submitted_at, job.id)


def by_submission(jobs: Iterable[JobView]) -> list[JobView]:
    """The jobs sorted by :func:`submission_order`, in a fraction of the time that pairs take to compare."""
    return sorted(sorted(jobs, key=attrgetter("id")), key=attrgetter("submitted_at"))


class Stage(NamedTuple):
    """How far a job is among its tiers; the smallest goes first."""

    tiers: int  # tiers that it has behind it, or :data:`ALL_REACHED`
    # Whether it works for the next one; False while it still hands over the model of the one that it works for no more,
    # which takes little CPU and somebody waits for.
    trains: bool


def stage_of(job: JobView, now: float) -> Stage:
    """How many tiers a job has behind it, and behind all others if all of them.

    Args:
        job: The job.
        now: Seconds since the Unix epoch.
    """
    reached = reached_tiers(job)
    tier = handing_over(job, now) if reached else None
    if tier is not None:
        return Stage(tier.number - 1, trains=False)
    return Stage(reached if reached < len(job.tiers) else ALL_REACHED, trains=True)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a job stands among those at the same stage."""

    rank: Any  # what they are sorted by, the smallest first; the order of submission settles ties
    why: str  # what that follows from, in words for its tenant; see :func:`.explain.at_stage`


class Candidate(NamedTuple):
    """A job in the ranking of its node. The number settles ties, and nothing after it is compared."""

    first: Stage
    rank: Any
    number: int
    job_id: str
    cores: float
    stage: Stage
    why: str


def ranking(
    jobs: Sequence[JobView], now: float, position_of: Callable[[JobView], Position], *, tier_first: bool
) -> tuple[Candidate, ...]:
    """The jobs of a node, those first that go first.

    Args:
        jobs: In the order of submission.
        now: Seconds since the Unix epoch.
        position_of: The position of a job among those at the same stage.
        tier_first: Whether jobs that have reached fewer tiers always go first, those that have reached all last.
    """
    candidates = []
    for index, job in enumerate(jobs):
        stage = stage_of(job, now)
        position = position_of(job)
        first = stage if tier_first else Stage(0, stage.trains)
        candidates.append(Candidate(first, position.rank, index, job.id, job.resources.cpu_cores, stage, position.why))
    candidates.sort()
    return tuple(candidates)
