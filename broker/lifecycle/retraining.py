"""When a model is trained again by itself, and what becomes of that, as pure steps.

A version that answers and misses what it should be in use (:mod:`.promises`), or is asked something else than at first
(:mod:`.drift`) where its terms name that, is trained again: the job that delivered it is submitted anew. One retraining
of an endpoint is open at a time. What it may use is set aside when it is decided on and, but for what it used, given
back once it is over; so those that begin within a window never get more than the budget. Each one that did not help, as
it replaced nothing or what it brought is as seldom right, makes the pause before the next longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.promises import LEAST_ROWS, best_in_use, in_use_of, is_missed
from tiercel.broker.lifecycle.versions import kept, why_different
from tiercel.core.durations import in_words
from tiercel.core.figures import number
from tiercel.core.jobs import JobState
from tiercel.core.retraining import (
    ACCURACY,
    INPUTS,
    REPEATS_LABEL,
    RETRAINS_LABEL,
    Retrain,
    Retraining,
    RetrainingState,
    Retrains,
)
from tiercel.core.tiers import Tier
from tiercel.core.validation import MAX_TIERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tiercel.broker.lifecycle.drift import Asked
    from tiercel.broker.lifecycle.promises import Heard
    from tiercel.core.endpoints import Endpoint, Version
    from tiercel.core.jobs import Job, JobSpec

HOUR_SECONDS = 3600.0
# More than begin in any window.
REMEMBERED = 128


@dataclass(frozen=True, slots=True)
class Terms:
    """How what a job delivers is trained again."""

    retrain: Retrain
    targets: tuple[float, ...]  # of the tiers that its tenant asked for, easiest first

    @classmethod
    def of(cls, job: Job) -> Terms | None:
        """The terms of a job; None of one that is never trained again."""
        if job.spec.retrain is None:
            return None
        return cls(job.spec.retrain, tuple(tier.target for tier in _asked_for(job)))

    def of_version(self, value: float | None, target: float | None) -> Retrain:
        """The terms of a version, with the accuracy below which it is trained again.

        That is the hardest of its tenant's tiers that it reaches. What reaches none, and is there since it is better
        than what answered before, is still to reach the easiest.

        Args:
            value: What was measured of it.
            target: The target of the tier that it was delivered for; None of the best model beyond them.
        """
        if self.retrain.below is not None:
            return self.retrain
        reached = [each for each in self.targets if each == target or (value is not None and value >= each)]
        return replace(self.retrain, below=max(reached, default=self.targets[0]))


def decided(
    endpoint: Endpoint, heard: Heard, feeding: Mapping[str, str], now: float, job_id: str
) -> tuple[Retraining | None, str]:
    """Whether a version is to be trained again now.

    Args:
        endpoint: The endpoint as it is.
        heard: What applications said of its versions, by number.
        feeding: The jobs that feed it, by variant.
        now: Seconds since the Unix epoch.
        job_id: Id of the new job, if there will be one.

    Returns:
        The retraining, if one is to begin, and what to tell of it; empty where nobody asked for any.
    """
    if (under_way := open_one(endpoint)) is not None:
        return None, words_of(under_way)
    told = []
    for version in endpoint.live:
        if version.retrain is None:
            continue
        whose = f"variant {version.variant}: " if version.variant else ""
        cause = _cause(endpoint, version)
        if cause:
            why_not = _why_waits(endpoint, version, cause, heard, feeding, now)
            if not why_not:
                granted = _left(endpoint.retrainings, version.retrain, now)
                begun = Retraining(job_id, version.version, _floor(version, cause, heard), now, granted, cause=cause)
                return begun, words_of(begun)
            told.append(f"{whose}version {version.version} is {_why_due(version.retrain.below, cause)}: {why_not}")
        else:
            told.append(whose + _why_fine(version, heard))
    return None, "; ".join(told)


def words_of(known: Retraining) -> str:
    """What to tell of a retraining that is not over."""
    if known.cause == INPUTS:
        return f"version {known.version} is asked something else than at first: job {known.job_id} trains it again"
    return (
        f"version {known.version} is less often right in use than it should be, {number(known.floor)} at most: job "
        f"{known.job_id} trains it again"
    )


def begun(known: Retraining) -> Retraining:
    """A retraining whose job is submitted."""
    return replace(known, state=RetrainingState.UNDERWAY)


def resumed(known: Retraining, now: float) -> Retraining:
    """A retraining that was over, and whose job its tenant lets go on: it counts as one that begins now.

    All that it may use is set aside again, and all that it used counts once it is over, also what it did before.
    """
    return replace(known, state=RetrainingState.UNDERWAY, decided_at=now, used_seconds=0.0, over_at=0.0)


def open_one(endpoint: Endpoint) -> Retraining | None:
    """The retraining of an endpoint that is not over, or None."""
    return next((each for each in endpoint.retrainings if not each.state.is_over), None)


def is_wanted(endpoint: Endpoint, retraining: Retraining) -> bool:
    """Whether a retraining that has not begun is still to begin."""
    version = next((each for each in endpoint.live if each.version == retraining.version), None)
    if version is None or version.retrain is None or version.retrain.below is None:
        return False
    return version.variant not in endpoint.pinned and _is_due(endpoint, version, retraining.cause)


def with_one(retrainings: Sequence[Retraining], one: Retraining) -> tuple[Retraining, ...]:
    """What an endpoint remembers, with a retraining as it is now: last is what was decided on last."""
    if any((each.job_id, each.decided_at) == (one.job_id, one.decided_at) for each in retrainings):
        return tuple(one if each.job_id == one.job_id else each for each in retrainings)
    return (*(each for each in retrainings if each.job_id != one.job_id), one)[-REMEMBERED:]


def better_one(endpoint: Endpoint, known: Retraining, heard: Heard, job: Job) -> Version | None:
    """A version of a retraining that was held, and is to answer in place of the one that is too seldom right.

    What was measured of that one is of another world: it is worth what it is in use, at best. But what applications say
    may be wrong, and a model in the middle of its training must not take the place of a good one for that. So one that
    does not reach what was promised answers only once its training has come to its own end. Of one that is asked
    something else than at first, and of which applications say nothing, nobody knows what it is worth: what reaches
    what was promised, measured on the newest data, answers in its place.

    Args:
        endpoint: The endpoint as it is.
        known: The retraining.
        heard: What applications said of its versions, by number.
        job: The retraining's job.
    """
    live = next((each for each in endpoint.live if each.version == known.version), None)
    worth = best_in_use(endpoint, known.version, heard)
    if live is None or live.retrain is None or not is_wanted(endpoint, known):
        return None
    promised = live.retrain.below if live.retrain.below is not None else math.inf
    if worth is None:
        if known.cause != INPUTS:
            return None
        worth = promised  # nobody says how often it is right
    is_trained = job.state in {JobState.COMPLETED, JobState.MISSED} and not job.is_spent
    found = [
        each
        for each in kept(endpoint)
        if each.job_id == known.job_id
        and each.value is not None
        and each.value >= (worth if is_trained else max(worth, promised))
        and not why_different(live, each.signature)
    ]
    return max(found, key=lambda each: each.value or 0.0, default=None)


def settled(endpoint: Endpoint, retraining: Retraining, job: Job | None, now: float) -> Retraining:
    """A retraining whose job is submitted, as that says.

    Args:
        endpoint: The endpoint as it is.
        retraining: The retraining as it was.
        job: Its job; None where that is gone.
        now: Seconds since the Unix epoch.
    """
    if job is not None and not job.state.is_final:
        return replace(retraining, state=RetrainingState.UNDERWAY)
    used = retraining.granted_seconds if job is None else job.cpu_seconds + job.accelerator_seconds
    if any(each.job_id == retraining.job_id and not each.held for each in endpoint.versions):
        state = RetrainingState.REPLACED
    else:
        is_cancelled = job is not None and job.state is JobState.CANCELLED
        state = RetrainingState.CANCELLED if is_cancelled else RetrainingState.FAILED
    return replace(retraining, state=state, used_seconds=used, over_at=now)


def helped(endpoint: Endpoint, heard: Heard, asked: Asked) -> Retraining | None:
    """The last retraining of an endpoint, if it is found by now that what it brought is as it should be.

    That is as often right, or, where that is what began it, asked what it was at first for as long as is compared.

    Args:
        endpoint: The endpoint as it is, judged.
        heard: What applications said of its versions, by number.
        asked: What its nodes know of what they are asked.
    """
    last = endpoint.retrainings[-1] if endpoint.retrainings else None
    if last is None or last.state is not RetrainingState.REPLACED:
        return None
    brought = next((each for each in endpoint.live if each.job_id == last.job_id), None)
    if brought is None:
        return None
    if last.cause == INPUTS:
        is_compared = any(each.rows for each in asked.get(brought.version, ()))
        return last if is_compared and brought.version not in endpoint.drifted else None
    in_use = in_use_of(brought.version, heard)
    below = brought.retrain.below if brought.retrain is not None else None
    return last if in_use is not None and below is not None and in_use.accuracy >= below else None


def again(job: Job, retraining: Retraining) -> tuple[JobSpec, Retrains]:
    """What is submitted: the spec of a job, whose first tier is now to be better than what answers, if that is known.

    Args:
        job: The job that delivered what answers.
        retraining: The retraining.
    """
    tiers = _asked_for(job)
    labels = {**job.spec.labels, REPEATS_LABEL: job.id, RETRAINS_LABEL: str(retraining.version)}
    retrains = Retrains(retraining.version, retraining.floor, retraining.granted_seconds, tiers)
    if not retraining.floor:
        return replace(job.spec, tiers=tiers, labels=labels, queue=False), retrains
    harder = [tier for tier in tiers if tier.target > retraining.floor][1 - MAX_TIERS :]
    first = Tier(retraining.floor, value=(*harder, tiers[-1])[0].value)
    return replace(job.spec, tiers=(first, *harder), labels=labels, queue=False), retrains


def _asked_for(job: Job) -> tuple[Tier, ...]:
    """The tiers that its tenant asked for."""
    return job.retrains.tiers if job.retrains is not None else job.spec.tiers


def _cause(endpoint: Endpoint, version: Version) -> str:
    """Why a version should be trained again; empty where it need not be."""
    return next((each for each in (ACCURACY, INPUTS) if _is_due(endpoint, version, each)), "")


def _is_due(endpoint: Endpoint, version: Version, cause: str) -> bool:
    terms = version.retrain
    if terms is None or terms.below is None or cause not in terms.causes:
        return False
    if cause == INPUTS:
        return version.version in endpoint.drifted
    return is_missed(endpoint, version.version, terms.below)


def _why_due(below: float | None, cause: str) -> str:
    if cause == INPUTS or below is None:
        return "asked something else than at first"
    return f"less often right than {number(below)}"


def _floor(version: Version, cause: str, heard: Heard) -> float:
    """The accuracy in use that is to be exceeded, at best; 0 where that is not known."""
    in_use = in_use_of(version.version, heard) if cause == ACCURACY else None
    return min(1.0, math.ceil(in_use.high * 1e4) / 1e4) if in_use is not None else 0.0


def _why_fine(version: Version, heard: Heard) -> str:
    """Why a version need not be trained again."""
    terms = version.retrain
    below = terms.below if terms is not None else None
    if terms is None or below is None:
        return f"version {version.version} promised nothing"
    if ACCURACY not in terms.causes:
        return f"version {version.version} is asked what it was at first, as far as can be told"
    if in_use_of(version.version, heard) is None:
        return f"applications have not said of {LEAST_ROWS} rows yet what was right (feedback)"
    return f"version {version.version} is right as often as {number(below)}, as far as can be told"


def _why_waits(
    endpoint: Endpoint, version: Version, cause: str, heard: Heard, feeding: Mapping[str, str], now: float
) -> str:
    """Why a version that should be trained again is not, now; empty where it is."""
    terms = version.retrain
    if terms is None:
        return "nobody asks for it"
    if version.variant in endpoint.pinned:
        return "it was chosen and stays; promote the newest version to let better ones follow"
    if version.variant in feeding:
        return f"job {feeding[version.variant]} feeds the endpoint already"
    last = endpoint.retrainings[-1] if endpoint.retrainings else None
    if last is not None and last.state is RetrainingState.CANCELLED and last.version == version.version:
        return (
            f"nothing is done, as job {last.job_id}, which trained it again, was cancelled; 'tiercel retry "
            f"{last.job_id} --from-scratch' trains it all the same"
        )
    if cause == ACCURACY and in_use_of(version.version, heard) is None:
        return f"nothing begins before feedback on {LEAST_ROWS} rows says how often it is right now"
    return _why_bounded(endpoint.retrainings, terms, now)


def _why_bounded(retrainings: Sequence[Retraining], terms: Retrain, now: float) -> str:
    """What of the terms forbids a retraining now; empty where nothing does."""
    window = in_words(terms.window_seconds)
    inside = _inside(retrainings, terms, now)
    if len(inside) >= terms.at_most:
        until = inside[-terms.at_most].decided_at + terms.window_seconds
        return f"{terms.at_most} retrainings in {window} is what retrain.at_most allows; the next from {_moment(until)}"
    until = _pause_until(retrainings, terms, now)
    if now < until:
        return f"the last retraining ({retrainings[-1].job_id}) did not help; the next from {_moment(until)}"
    least = terms.budget_core_hours * HOUR_SECONDS / terms.at_most
    if (left := _left(retrainings, terms, now)) < least:
        return (
            f"{max(0.0, left) / HOUR_SECONDS:.3g} of {terms.budget_core_hours:g} core-hours in {window} are left, and "
            f"none begins with less than {least / HOUR_SECONDS:.3g} (retrain.budget / at_most)"
        )
    return ""


def _inside(retrainings: Sequence[Retraining], terms: Retrain, now: float) -> list[Retraining]:
    """Those that count in the present window; ones that are not over always do."""
    # A moment that is farther ahead than a window is of a clock that was set back since, and says nothing.
    window = terms.window_seconds
    return [each for each in retrainings if abs(each.decided_at - now) < window or not each.state.is_over]


def _left(retrainings: Sequence[Retraining], terms: Retrain, now: float) -> float:
    """Seconds of cores and accelerators that are left of the budget."""
    spent = math.fsum(each.cost_seconds for each in _inside(retrainings, terms, now))
    return terms.budget_core_hours * HOUR_SECONDS - spent


def _pause_until(retrainings: Sequence[Retraining], terms: Retrain, now: float) -> float:
    """When the pause after retrainings that did not help is over, seconds since the Unix epoch."""
    # What is trained right after a change has mostly data of before: the first pause is half of what spreads them
    # evenly over the window, and each further one twice as long, up to a window.
    in_vain = 0
    for each in reversed(retrainings):
        if each.state is RetrainingState.HELPED:
            break
        in_vain += 1
    if not in_vain or retrainings[-1].over_at > now + terms.window_seconds:
        return 0.0
    pause = terms.window_seconds / terms.at_most * 2.0 ** (min(in_vain, 32) - 2)
    return retrainings[-1].over_at + min(pause, terms.window_seconds)


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
