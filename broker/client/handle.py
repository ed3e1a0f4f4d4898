"""A handle on one job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tiercel.broker.client.curves import MOST_REPORTS, Curve, check_limit, curve_of
from tiercel.broker.client.downloads import Progress
from tiercel.core.errors import NotFoundError, TierMissedError
from tiercel.core.file_views import FileInfo
from tiercel.core.jobs import TierState, TierStatus
from tiercel.core.views import Explanation, JobEvent, JobInfo, TierEvent

if TYPE_CHECKING:
    from pandas import DataFrame


class _Client(Protocol):
    async def get_job(self, job_id: str) -> JobInfo: ...
    async def cancel_job(self, job_id: str) -> JobInfo: ...
    async def suspend_job(self, job_id: str) -> JobInfo: ...
    async def resume_job(self, job_id: str, max_epochs: int | None = None) -> JobInfo: ...
    async def retry_job(self, job_id: str, *, from_scratch: bool = False, idempotency_key: str = "") -> JobInfo: ...
    async def set_priority(self, job_id: str, priority: int) -> JobInfo: ...
    async def explain_job(self, job_id: str) -> Explanation: ...
    def events(self, *, job_id: str = "", after: int = 0, follow: bool = True) -> AsyncGenerator[JobEvent]: ...
    def logs(self, job_id: str, *, follow: bool = False, offset: int = 0) -> AsyncGenerator[bytes]: ...
    async def files(self, job_id: str) -> tuple[FileInfo, ...]: ...
    async def download(
        self, job_id: str, to: str | Path, pattern: str = "**", *, progress: Progress | None = None
    ) -> tuple[Path, ...]: ...


class JobHandle:
    """One job, to be followed and acted on; made by :meth:`.Client.submit` and :meth:`.Client.job`."""

    def __init__(self, client: _Client, job_id: str) -> None:
        self._client = client
        self.id = job_id

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    async def refresh(self) -> JobInfo:
        """The job as it is now."""
        return await self._client.get_job(self.id)

    async def wait(self, timeout: float | None = None) -> JobInfo:
        """Wait until nothing happens to the job any more.

        Args:
            timeout: Seconds to wait at most, or None.

        Returns:
            The job in its final state, whichever it is.

        Raises:
            TimeoutError: It takes longer.
        """
        async with asyncio.timeout(timeout):
            async for _ in self.events():
                pass
            return await self.refresh()

    async def wait_for_tier(self, number: int, timeout: float | None = None) -> TierStatus:
        """Wait until a tier's version answers.

        Args:
            number: 1 for the first tier.
            timeout: Seconds to wait at most, or None.

        Raises:
            TimeoutError: It takes longer.
            TierMissedError: It failed, or the job ended without it.
            NotFoundError: The job has no such tier.
        """
        async with asyncio.timeout(timeout):
            job = await self.refresh()
            tier = _tier_of(job, number)
            if not (_is_decided(tier) or job.state.is_final):
                decided = await self._wait_tier_decided(number)
                job = await self.refresh()
                tier = decided or _tier_of(job, number)
        return _delivered(job, tier)

    async def _wait_tier_decided(self, number: int) -> TierStatus | None:
        # From the beginning: what happened since the job was asked for is in there.
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, TierEvent) and event.tier.number == number and _is_decided(event.tier):
                    return event.tier
        return None

    def events(self, after: int = 0, *, follow: bool = True) -> AsyncGenerator[JobEvent]:
        """What happens to the job, from its beginning or from a cursor on, until it has finished.

        Goes on by itself behind the last event when the connection breaks.

        Args:
            after: Only events with a larger ``sequence``.
            follow: Wait for what will happen; otherwise the stream ends after what has happened so far.
        """
        return self._client.events(job_id=self.id, after=after, follow=follow)

    async def curve(self, limit: int = MOST_REPORTS) -> Curve:
        """What its script has reported so far, as far as the broker keeps it.

        Args:
            limit: Only so many reports, the newest; 1 to 10 000.
        """
        check_limit(limit)
        job = await self.refresh()
        async with aclosing(self.events(follow=False)) as events:
            return await curve_of(job, events, limit)

    async def to_frame(self, limit: int = MOST_REPORTS) -> DataFrame:
        """The same as a pandas data frame, see :meth:`Curve.to_frame`.

        Raises:
            SetupError: pandas is not installed.
        """
        return (await self.curve(limit)).to_frame()

    def logs(self, *, follow: bool = False, offset: int = 0) -> AsyncGenerator[bytes]:
        """The training script's output.

        Args:
            follow: Stay until the job has finished; goes on by itself when the connection breaks.
            offset: Byte to begin with.
        """
        return self._client.logs(self.id, follow=follow, offset=offset)

    async def files(self) -> tuple[FileInfo, ...]:
        """What is kept of the files that it left behind, by path; see the spec's ``outputs``."""
        return await self._client.files(self.id)

    async def download(
        self, to: str | Path, pattern: str = "**", *, progress: Progress | None = None
    ) -> tuple[Path, ...]:
        """Fetch files that it left behind into a folder; see :meth:`.Client.download`."""
        return await self._client.download(self.id, to, pattern, progress=progress)

    async def cancel(self) -> JobInfo:
        """Stop the job; versions that it delivered keep serving. Cancelling a finished job changes nothing."""
        return await self._client.cancel_job(self.id)

    async def suspend(self) -> JobInfo:
        """Have it save a checkpoint, free all that it holds and wait until it is resumed; its endpoint goes on."""
        return await self._client.suspend_job(self.id)

    async def resume(self, max_epochs: int | None = None) -> JobInfo:
        """Let it go on from its last checkpoint after it was suspended or cancelled, failed or missed a tier.

        Args:
            max_epochs: Epochs that it may train, those of earlier runs counted; None for as many as before.
        """
        return await self._client.resume_job(self.id, max_epochs)

    async def retry(self, *, from_scratch: bool = False) -> JobInfo:
        """Start it again once it is over: from its last checkpoint, or from scratch, as the new job that comes back."""
        return await self._client.retry_job(self.id, from_scratch=from_scratch)

    async def set_priority(self, priority: int) -> JobInfo:
        """Give it another priority among its tenant's jobs, -100 to 100."""
        return await self._client.set_priority(self.id, priority)

    async def explain(self) -> Explanation:
        """Why the job has its share."""
        return await self._client.explain_job(self.id)


def _is_decided(tier: TierStatus) -> bool:
    return tier.state in {TierState.DELIVERED, TierState.FAILED}


def _tier_of(job: JobInfo, number: int) -> TierStatus:
    for tier in job.tiers:
        if tier.number == number:
            return tier
    raise NotFoundError(f"Job {job.id} has no tier {number}; it has {len(job.tiers)}.", field="tier")


def _delivered(job: JobInfo, tier: TierStatus) -> TierStatus:
    if tier.state is TierState.DELIVERED:
        return tier
    why = tier.reason or job.reason or "the broker did not say why"
    raise TierMissedError(f"Tier {tier.number} of job {job.id} was not delivered ({job.state.value}): {why}")
