"""Follows the jobs of a schedule through the events that the SDK streams."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

from benchmarks.averages import rounded
from benchmarks.scheduling.outcome import JobOutcome, Point
from benchmarks.scheduling.schedules import ScheduledJob
from benchmarks.timeline import JobTrack, Timeline
from tiercel import Client, JobInfo, TierState
from tiercel.broker.client import ProgressEvent

SETTLE_SECONDS = 15.0
"""After the last job's end, deliveries that are under way get this long."""

_POLL_SECONDS = 0.1


@dataclass(slots=True)
class Follower:
    """What is known of the jobs so far."""

    expected: int  # how many jobs there will be
    timeline: Timeline = field(default_factory=Timeline)  # the jobs that were submitted
    # CPU seconds at each report, by job, beside the track's points.
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)
    # Set when all jobs were submitted and nothing happens to any of them any more.
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _scheduled: dict[str, ScheduledJob] = field(default_factory=dict)
    _ended: dict[str, asyncio.Event] = field(default_factory=dict)

    def add(self, scheduled: ScheduledJob, job: JobInfo) -> None:
        """Begin to follow a job that was just submitted; its first events may be told before, and do not matter."""
        self.timeline.submitted(job)
        self.cpu_seconds[job.id] = []
        self._scheduled[job.id] = scheduled
        self._ended[job.id] = asyncio.Event()

    async def follow(self, client: Client) -> None:
        """Take in events until cancelled."""
        async with aclosing(client.events()) as events:
            async for event in events:
                self.timeline.add(event)
                if isinstance(event, ProgressEvent) and event.job_id in self.cpu_seconds:
                    self.cpu_seconds[event.job_id].append(event.cpu_seconds)
                if len(self.timeline.jobs) == self.expected and self.timeline.is_over:
                    self.over.set()
                if event.job_id in self._ended and self.timeline.jobs[event.job_id].state.is_final:
                    self._ended[event.job_id].set()

    async def settle(self, client: Client) -> dict[str, JobInfo]:
        """Wait for deliveries that are under way, and ask for the final truth; jobs by id."""
        jobs: dict[str, JobInfo] = {}
        for _ in range(round(SETTLE_SECONDS / _POLL_SECONDS)):
            jobs = {job.id: job for job in await client.list_jobs() if job.id in self.timeline.jobs}
            if all(tier.state is not TierState.REACHED for job in jobs.values() for tier in job.tiers):
                break
            await asyncio.sleep(_POLL_SECONDS)
        return jobs

    async def wait_seen(self, job_id: str) -> None:
        """Wait until the event of a job's end was taken in."""
        await self._ended[job_id].wait()

    def outcome(self, job: JobInfo, began_at: float) -> JobOutcome:
        """What became of a job."""
        return _outcome(self._scheduled[job.id], self.timeline.jobs[job.id], self.cpu_seconds[job.id], job, began_at)

    def outcomes(self, jobs: dict[str, JobInfo], began_at: float) -> tuple[JobOutcome, ...]:
        """What became of all jobs, in the order of submission; see :meth:`outcome`."""
        return tuple(self.outcome(jobs[track.id], began_at) for track in self.timeline)


def _outcome(scheduled: ScheduledJob, track: JobTrack, cpu: list[float], job: JobInfo, began_at: float) -> JobOutcome:
    points = zip(track.points, cpu, strict=True)
    return JobOutcome(
        name=scheduled.name,
        kind=scheduled.kind,
        training_seed=scheduled.training_seed,
        submitted_seconds=round(track.submitted_at - began_at, 3),
        state=job.state.value,
        reason=job.reason,
        targets=tuple(tier.target for tier in job.tiers),
        reached_seconds=tuple(rounded(tier.reached_seconds, 3) for tier in job.tiers),
        delivered_seconds=tuple(rounded(tier.delivered_seconds, 3) for tier in job.tiers),
        finished_seconds=rounded(job.finished_seconds, 3),
        cpu_seconds=round(job.cpu_seconds, 3),
        points=tuple(Point(round(at - began_at, 3), value, round(used, 3)) for (at, value), used in points),
        shares=tuple((round(at - began_at, 3), weight) for at, weight in track.shares),
    )
