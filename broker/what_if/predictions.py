"""Which predictions are recorded, what becomes of them, and how far off they were. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tiercel.core.jobs import Job, JobState
from tiercel.core.predictions import Accuracy, Prediction, PredictionState
from tiercel.core.what_if import WhatIf

MOST_OF_A_TIER = 4
"""So many predictions of a tier are recorded."""
MOST_OPEN = 4000
"""While so many are open no further one is recorded."""
LEAST_SECONDS = 0.5
"""A tier that comes sooner is there before anybody has read the answer: its relative error says nothing."""

_EACH_QUARTER = 4


def is_due(earlier: Sequence[Prediction], now: float) -> bool:
    """Whether a tier lacks a prediction: the first, or a further one as half of what the last one told is over."""
    if not earlier:
        return True
    last = earlier[-1]
    return len(earlier) < MOST_OF_A_TIER and now >= last.made_at.timestamp() + last.told.seconds / 2


def to_record(
    found: WhatIf, made_at: float, tenants: Mapping[str, str], earlier: Mapping[tuple[str, int], Sequence[Prediction]]
) -> Iterator[Prediction]:
    """The predictions of an answer that are recorded.

    Args:
        found: The answer.
        made_at: When the present was as it was asked about, seconds since the Unix epoch.
        tenants: Whose each job is.
        earlier: What is recorded and open, by job and tier, the oldest first.
    """
    room = MOST_OPEN - sum(map(len, earlier.values()))
    moment = datetime.fromtimestamp(made_at, UTC)
    for job in found.jobs:
        for tier in job.tiers:
            if tier.present is None or tier.drawn is None or job.id not in tenants:
                continue
            if room > 0 and is_due(earlier.get((job.id, tier.tier), ()), made_at):
                room -= 1
                yield Prediction(job.id, tier.tier, found.policy, moment, tier.present, tier.drawn, tenants[job.id])


def settled(prediction: Prediction, job: Job | None, policy: str) -> Prediction | None:
    """What becomes of an open prediction.

    Args:
        prediction: The prediction.
        job: Its job as it is now; None where it is known no more.
        policy: That decides now.

    Returns:
        None where it is withdrawn, as somebody has changed what it was about: cancelled or suspended the job, or set
        another policy.
    """
    tier = next((each for each in job.tiers if each.number == prediction.tier), None) if job is not None else None
    if job is None or tier is None:
        return None
    if tier.reached_seconds is not None:
        came = job.submitted_at + tier.reached_seconds - prediction.made_at.timestamp()
        # The tier may have been reached while the present was looked at.
        return replace(prediction, state=PredictionState.CAME, came_seconds=came) if came > 0 else None
    if job.state in {JobState.CANCELLED, JobState.SUSPENDED} or prediction.policy != policy:
        return None
    return replace(prediction, state=PredictionState.NEVER) if job.state.is_final else prediction


def accuracies(predictions: Iterable[Prediction]) -> tuple[Accuracy, ...]:
    """How far off settled predictions were, by policy."""
    by_policy: dict[str, list[Prediction]] = {}
    for each in predictions:
        if each.state is not PredictionState.OPEN:
            by_policy.setdefault(each.policy, []).append(each)
    return tuple(_accuracy(policy, found) for policy, found in sorted(by_policy.items()))


def _accuracy(policy: str, found: Sequence[Prediction]) -> Accuracy:
    came = [(each.told, each.came_seconds) for each in found if (each.came_seconds or 0.0) >= LEAST_SECONDS]
    never = sum(each.state is PredictionState.NEVER for each in found)
    errors = [(told.seconds - seconds) / seconds for told, seconds in came if seconds is not None]
    if not errors:
        return Accuracy(policy, 0, never, in_band=0.0 if never else None)
    sizes = sorted(map(abs, errors))
    first, middle, third = statistics.quantiles(sizes, n=_EACH_QUARTER) if len(sizes) > 1 else sizes * 3
    within = sum(told.low <= seconds <= told.high for told, seconds in came if seconds is not None)
    return Accuracy(
        policy, len(errors), never, middle, first, third, statistics.median(errors), within / (len(errors) + never)
    )
