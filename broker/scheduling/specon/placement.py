"""Where a new job goes under SpeCon-style scheduling.

SpeCon itself takes whatever node the cluster gives. Both arms of a comparison must begin with the same placement,
hence ``random`` and ``given``, which depend on nothing but the job's name. ``procon`` is ProCon-style:
of that scheduler the code could be read, but what its nodes measure is not what ours do, so it is a reconstruction.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence

from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.broker.scheduling.placement import Preference, fewest_jobs_per_core
from tiercel.broker.scheduling.specon.remaining import epoch_seconds, epochs_left

_NONE_GIVEN: Mapping[str, str] = {}


class SpeconPlacement(enum.Enum):
    """Where a new job goes: the fewest jobs per core, the least work left, by lot, or as the options say."""

    SPREAD = "spread"
    PROCON = "procon"
    RANDOM = "random"
    GIVEN = "given"


def parse_given(text: str) -> dict[str, str]:
    """Read ``JOB=NODE`` pairs with commas between, by the job's name.

    Raises:
        ValueError: It is something else.
    """
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    given = dict(pair.split("=", 1) for pair in pairs if pair.count("=") == 1)
    if len(given) != len(pairs) or not all(given) or not all(given.values()):
        msg = f"given is {text!r}; it must be like JOB=NODE,JOB=NODE with every job's name once"
        raise ValueError(msg)
    return given


def preference_of(
    placement: SpeconPlacement, *, now: float, seed: int = 0, given: Mapping[str, str] = _NONE_GIVEN
) -> Preference:
    """The order in which a new job prefers nodes.

    Args:
        placement: The rule.
        now: Seconds since the Unix epoch.
        seed: Of the lots.
        given: Node by the job's name; a job without one goes where the fewest jobs per core are.
    """
    if placement is SpeconPlacement.PROCON:
        return lambda job, node, jobs: _least_work(job, node, jobs, now)
    if placement is SpeconPlacement.RANDOM:
        return lambda job, node, _: (_lot(seed, job, node), node.id)
    if placement is SpeconPlacement.GIVEN:
        return lambda job, node, jobs: (given.get(job.name) != node.id, *fewest_jobs_per_core(job, node, jobs))
    return fewest_jobs_per_core


def _least_work(job: JobView, node: NodeView, jobs: Sequence[JobView], now: float) -> tuple[float | str, ...]:
    """ProCon's order: nodes within their limit first, then (work left on the node) times (its jobs)."""
    # Its rank ("1 + sum over t of the jobs that need longer than t") is 1 and the sum of what they need. Its limit is
    # on used CPU, which is what was asked for here: with more jobs than cores a node is always used in full.
    asked = sum(other.resources.cpu_cores for other in jobs)
    rank = (1 + sum(work_left(other, now) for other in jobs)) * len(jobs)
    return (asked > node.cpu_cores, rank, *fewest_jobs_per_core(job, node, jobs))


def work_left(job: JobView, now: float) -> float:
    """ProCon's measure: the time of an epoch over the job's share, times the epochs that are left.

    A job without an epoch yet counts the time since its submission as one.
    """
    seconds, left = epoch_seconds(job), epochs_left(job)
    share = job.share.cpu_weight if job.share is not None else 1.0
    return (max(now - job.submitted_at, 0.0) if seconds is None else seconds) / share * (1 if left is None else left)


def _lot(seed: int, job: JobView, node: NodeView) -> str:
    """A number drawn once for each job and node: the same in every run, whatever else happens."""
    return hashlib.sha256(f"{seed}\0{job.name or job.id}\0{node.id}".encode()).hexdigest()
