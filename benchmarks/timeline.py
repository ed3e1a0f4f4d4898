"""What happened to the jobs of a demo: made of the events that the SDK streams, read by live view, report and plot."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from tiercel import Direction, JobInfo, JobState, TierState
from tiercel.broker.client import JobEvent, PriorityEvent, ProgressEvent, ShareEvent, StateEvent, TierEvent, TierStatus


@dataclass(slots=True)
class JobTrack:
    """One job over time. Times are seconds since the Unix epoch."""

    id: str  # of the job
    tenant: str  # its owner
    name: str  # its label for people
    endpoint: str  # what it feeds
    metric: str  # name of its metric
    direction: Direction  # whether a larger or a smaller metric is better
    submitted_at: float  # when the broker accepted it
    tiers: list[TierStatus]  # latest status of each, easiest first
    state: JobState = JobState.PENDING  # where it is
    reason: str = ""  # why, in plain words
    log_tail: str = ""  # last lines of its output, if it failed
    points: list[tuple[float, float]] = field(default_factory=list)  # the metric: (time, value)
    shares: list[tuple[float, float]] = field(default_factory=list)  # the CPU share: (time, fraction of the node)
    finished_at: float | None = None  # when nothing happened to it any more, or None
    cpu_seconds: float = 0.0  # CPU time used, as far as known

    @classmethod
    def of(cls, job: JobInfo) -> JobTrack:
        """The track of a job that was just submitted; its events are yet to be added."""
        return cls(
            id=job.id,
            tenant=job.tenant,
            name=job.spec.name,
            endpoint=job.spec.endpoint,
            metric=job.spec.metric,
            direction=job.spec.direction,
            submitted_at=job.submitted_at.timestamp(),
            tiers=list(job.tiers),
        )

    @property
    def best(self) -> float | None:
        """Best value of the metric so far."""
        values = [value for _, value in self.points]
        if not values:
            return None
        return max(values) if self.direction is Direction.MAX else min(values)

    @property
    def delivered(self) -> list[TierStatus]:
        """Tiers whose version answers."""
        return [tier for tier in self.tiers if tier.state is TierState.DELIVERED]

    @property
    def next_tier(self) -> TierStatus | None:
        """The easiest tier that is not reached yet."""
        return next((tier for tier in self.tiers if tier.reached_seconds is None), None)

    @property
    def share(self) -> float | None:
        """The fraction of the node's CPU that it has now, or None."""
        if self.finished_at is not None or not self.shares:
            return None
        return self.shares[-1][1]

    @property
    def moves(self) -> int:
        """How many times its share was changed after it got its first one."""
        weights = [weight for _, weight in self.shares]
        return sum(before != after for before, after in itertools.pairwise(weights))

    def add(self, event: JobEvent) -> None:
        """Take in something that happened to this job."""
        at = event.at.timestamp()
        match event:
            case StateEvent():
                self._enter(event.state, event.reason, at)
            case ProgressEvent():
                self.points.append((at, event.value))
                self.cpu_seconds = event.cpu_seconds
            case TierEvent():
                self.tiers[event.tier.number - 1] = event.tier
            case ShareEvent():
                self.shares.append((at, event.share.cpu_weight))
            case PriorityEvent():
                pass

    def _enter(self, state: JobState, reason: str, at: float) -> None:
        self.state, self.reason = state, reason
        if state.is_final:
            self.finished_at = at


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """A version answered the application for the first time, in seconds since the Unix epoch."""

    endpoint: str
    version: int
    at: float


@dataclass(slots=True)
class Timeline:
    """All jobs of a demo over time."""

    jobs: dict[str, JobTrack] = field(default_factory=dict)  # by id, in the order of submission
    first_answers: list[FirstAnswer] = field(default_factory=list)  # as the application saw them, in order

    def submitted(self, job: JobInfo) -> JobTrack:
        """Begin to follow a job."""
        track = self.jobs[job.id] = JobTrack.of(job)
        return track

    def add(self, event: JobEvent) -> None:
        """Take in an event; those of unknown jobs are ignored."""
        if event.job_id in self.jobs:
            self.jobs[event.job_id].add(event)

    @property
    def began_at(self) -> float:
        """When the first job was submitted, seconds since the Unix epoch."""
        return min(track.submitted_at for track in self)

    @property
    def ended_at(self) -> float:
        """When the last job ended, or had its last news."""
        return max(track.finished_at or _last_news(track) for track in self)

    @property
    def is_over(self) -> bool:
        """Whether nothing happens to any job any more."""
        return bool(self.jobs) and all(track.state.is_final for track in self)

    @property
    def reallocations(self) -> int:
        """How many times a job's share was changed after it got its first one."""
        return sum(track.moves for track in self)

    def swaps(self) -> list[float]:
        """When versions began to answer, seconds since the Unix epoch, as the broker was told by the server."""
        return sorted(
            track.submitted_at + tier.delivered_seconds
            for track in self
            for tier in track.delivered
            if tier.delivered_seconds is not None
        )

    def answering(self, endpoint: str) -> int | None:
        """The version that answered the application last, or None."""
        versions = [answer.version for answer in self.first_answers if answer.endpoint == endpoint]
        return max(versions, default=None)

    def __iter__(self) -> Iterator[JobTrack]:
        return iter(self.jobs.values())


def _last_news(track: JobTrack) -> float:
    return max([track.submitted_at, *(at for at, _ in track.points), *(at for at, _ in track.shares)])
