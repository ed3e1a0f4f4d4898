"""Admits a job with hard deadlines only where what is foretold keeps them, and those that others were promised."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import machine as job_machine
from tiercel.broker.scheduling.views import JobFacts, job_view
from tiercel.core import figures
from tiercel.core.durations import in_words
from tiercel.core.errors import DeadlineOutOfReachError
from tiercel.core.run_records import similar_to, workload_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.predictions import Predictions
    from tiercel.broker.scheduling.interface import JobView, PastRun
    from tiercel.core.jobs import JobSpec
    from tiercel.core.tenants import Tenant
    from tiercel.core.tiers import Tier
    from tiercel.core.what_if import Span, WhatIf

# Stands for the job that is to be, among those that are; no job's id.
_NEW = "the new job"
_ASKER = "hard deadlines"

# A job's id, and the number of one of its tiers.
_TierOfJob = tuple[str, int]


class HardDeadlines:
    """Asks what would come of one more job, one job at a time: each sees those that were admitted before it.

    Args:
        predictions: Asks.
        clock: The time.
    """

    def __init__(self, predictions: Predictions, clock: Clock) -> None:
        self._predictions = predictions
        self._clock = clock
        self._admitting = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def checked(self, tenant: Tenant, spec: JobSpec) -> AsyncIterator[str]:
        """Check a job that is to be submitted within; yields what to say of it, empty without a hard deadline.

        Raises:
            DeadlineOutOfReachError: A deadline is not kept in nine of ten futures, or nobody knows; or one of another
                job would not be any more.
            TiercelError: Nothing can be foretold now; see :meth:`.Asking.ask`.
        """
        if not any(tier.hard for tier in spec.tiers):
            yield ""
            return
        async with self._admitting:
            yield await self._check(tenant, spec)

    async def _check(self, tenant: Tenant, spec: JobSpec) -> str:
        present = self._predictions.present()
        job, _ = job_machine.create(_NEW, tenant.name, spec, self._clock.now())
        facts = JobFacts(
            workload_of(tenant.name, spec),
            similar_to(tenant.name, spec),
            tenant.weight,
            (),
            0.0,
            0.0,
            priority_class=tenant.class_of(spec.priority_class),
        )
        view = job_view(job, facts)
        with_it = replace(present, snapshot=replace(present.snapshot, jobs=(*present.snapshot.jobs, view)))
        _check_known(spec, with_it.snapshot.earlier_runs(view))
        expected = _spans(await self._predictions.foresee(with_it, frozenset({_NEW}), asker=_ASKER))
        words = [_kept(number, tier.deadline_seconds, expected.get((_NEW, number))) for number, tier in _hard(spec)]
        if endangered := _late(present.snapshot.jobs, expected, present.snapshot.now):
            before = _spans(await self._predictions.foresee(present, frozenset(), asker=_ASKER))
            if endangered - _late(present.snapshot.jobs, before, present.snapshot.now):
                first = min(number for number, _ in _hard(spec))
                raise DeadlineOutOfReachError(
                    f"tiers[{first - 1}].hard: a hard deadline that another job was admitted with would be missed; "
                    "submit it later, or without hard",
                    field=f"tiers[{first - 1}].hard",
                )
        return "; ".join(words)


def _hard(spec: JobSpec) -> Iterator[tuple[int, Tier]]:
    """The tiers with a hard deadline, with their numbers."""
    return ((number, tier) for number, tier in enumerate(spec.tiers, 1) if tier.hard)


def _check_known(spec: JobSpec, runs: Sequence[PastRun]) -> None:
    """Refuse where no earlier run got as far as a hard deadline asks."""
    for number, tier in _hard(spec):
        if not any(spec.direction.reaches(point.value, tier.target) for run in runs for point in run.curve):
            field, target = f"tiers[{number - 1}].hard", figures.number(tier.target)
            raise DeadlineOutOfReachError(
                f"{field}: no earlier run of this program, or of one like it, has reached {target}, so that "
                "nobody knows when it comes; submit it once without hard",
                field=field,
            )


def _spans(found: WhatIf) -> Mapping[_TierOfJob, Span]:
    """When tiers are expected, as things are; without those of which nothing is known."""
    return {(job.id, tier.tier): tier.present for job in found.jobs for tier in job.tiers if tier.present is not None}


def _late(jobs: Sequence[JobView], expected: Mapping[_TierOfJob, Span], now: float) -> set[_TierOfJob]:
    """The hard deadlines that are not kept in nine of ten futures."""
    return {
        (job.id, tier.number)
        for job in jobs
        for tier in job.tiers
        if tier.tier.hard
        and (span := expected.get((job.id, tier.number))) is not None
        and now + span.high > job.submitted_at + (tier.deadline_seconds or 0.0)
    }


def _kept(number: int, deadline: float | None, span: Span | None) -> str:
    """What to say of a deadline that is kept; refuses one that is not."""
    field, wanted = f"tiers[{number - 1}].hard", in_words(round(deadline or 0.0, 1))
    if span is None:
        raise DeadlineOutOfReachError(
            f"{field}: it is not expected to come at all; submit it without hard, or where a node could hold it",
            field=field,
        )
    expected = f"after {_seconds(span.seconds)} ({_seconds(span.low)} to {_seconds(span.high)})"
    if span.high > (deadline or 0.0):
        raise DeadlineOutOfReachError(
            f"{field}: it is expected {expected}, and wanted after {wanted} at the latest; give it more time, submit "
            "it later, or without hard",
            field=field,
        )
    return f"tier {number} is expected {expected}, in time for its deadline after {wanted}"


def _seconds(seconds: float) -> str:
    return in_words(float(f"{seconds:.3g}"))
