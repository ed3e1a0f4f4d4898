"""A demo as it might have been: its events and its application's requests, made up but whole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from benchmarks.demo_jobs import JOBS, DemoJob
from benchmarks.timeline import FirstAnswer, Timeline
from testing.load_record import LoadRecord, Request
from tiercel import Direction, JobInfo, JobState, Tier, TierState
from tiercel.broker.client import JobEvent, ProgressEvent, ShareEvent, StateEvent, TierEvent, TierStatus
from tiercel.core.shares import Share

BEGAN = 1_700_000_000.0
FIRST_VALUES = {Direction.MAX: 0.2, Direction.MIN: 230.0}
STEP_SECONDS = 1.0
HAND_OVER_SECONDS = 1.5


def job_info(number: int, job: DemoJob) -> JobInfo:
    """The job as it was just after it had been submitted."""
    return JobInfo(
        id=f"job{number}",
        tenant=job.tenant,
        spec=job.spec("process"),
        state=JobState.PENDING,
        reason="",
        submitted_at=_time(number * 0.1),
        started_seconds=None,
        finished_seconds=None,
        tiers=tuple(tier_info(each, target) for each, target in enumerate(job.targets, 1)),
        epoch=0,
        latest_value=None,
        best_value=None,
        node_id="",
        share=None,
        cpu_seconds=0.0,
        attempts=0,
        log_tail="",
    )


def tier_info(
    number: int, target: float, state: TierState = TierState.PENDING, *, at: float | None = None
) -> TierStatus:
    """A tier; ``at`` is when it was reached, seconds since submission."""
    delivered = state is TierState.DELIVERED
    return TierStatus(
        number=number,
        tier=Tier(target),
        state=state,
        reached_value=target if at is not None else None,
        delivered_value=target if delivered else None,
        reached_seconds=at,
        delivered_seconds=at + HAND_OVER_SECONDS if delivered and at is not None else None,
        version=number if delivered else None,
        reason="",
    )


def events_of(number: int, job: DemoJob, *, jobs: int) -> Iterator[JobEvent]:
    """What happened to the job: it learns exponentially, the later jobs the slower, and reaches each tier."""
    about = {"job_id": f"job{number}", "tenant": job.tenant}
    sequence = number * 1000
    start, goal = FIRST_VALUES[job.direction], job.targets[-1]
    pace = 0.14 / (number + 1)
    reached = 0
    yield StateEvent(sequence, at=_time(2 + number), state=JobState.RUNNING, reason="", **about)
    for step in range(200):
        seconds = 3 + number + step * STEP_SECONDS
        sequence += 1
        if step % 12 == 0:
            share = Share(1 / jobs if step == 0 else 0.1 + 0.2 * ((step // 12 + number) % jobs) / jobs * 2)
            yield ShareEvent(sequence, at=_time(seconds), node_id="local", share=share, **about)
        value = goal + (start - goal) * math.exp(-pace * step) + (goal - start) * 0.01
        yield ProgressEvent(sequence, about["job_id"], about["tenant"], _time(seconds), step, value, {}, seconds)
        while reached < len(job.targets) and job.direction.reaches(value, job.targets[reached]):
            target = job.targets[reached]
            reached += 1
            since = seconds - number * 0.1
            for state, at in ((TierState.REACHED, seconds), (TierState.DELIVERED, seconds + HAND_OVER_SECONDS)):
                yield TierEvent(sequence, at=_time(at), tier=tier_info(reached, target, state, at=since), **about)
        if reached == len(job.targets):
            done = _time(seconds + 2)
            yield StateEvent(sequence, at=done, state=JobState.COMPLETED, reason="All tiers are delivered.", **about)
            return


def made_up_timeline(jobs: tuple[DemoJob, ...] = JOBS) -> Timeline:
    """All jobs from their submission to their end."""
    timeline = Timeline()
    for number, job in enumerate(jobs):
        timeline.submitted(job_info(number, job))
        for event in events_of(number, job, jobs=len(jobs)):
            timeline.add(event)
    return timeline


def made_up_record(timeline: Timeline, *, rate: float = 60.0) -> LoadRecord:
    """Requests to all endpoints in turn, each from its first version to the end, none of which failed."""
    record = LoadRecord(cpu_seconds=1.0)
    flips = {
        track.endpoint: [track.submitted_at + (tier.delivered_seconds or 0) for tier in track.delivered]
        for track in timeline
    }
    at = min(min(times) for times in flips.values())
    number = 0
    while at < timeline.ended_at:
        live = [endpoint for endpoint, times in flips.items() if min(times) <= at]
        endpoint = live[number % len(live)]
        version = sum(flip <= at for flip in flips[endpoint])
        latency = 0.002 * (1 + 0.5 * math.sin(number)) * (2 if number % 97 == 0 else 1)
        record.add(Request(at, endpoint, latency, version, 1.0 - 0.3 / version))
        number += 1
        at += 1 / rate
    for endpoint, times in flips.items():
        for version, _ in enumerate(times, 1):
            first = record.first_answer(endpoint, version)
            if first is not None:
                timeline.first_answers.append(FirstAnswer(endpoint, version, first))
    return record


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(BEGAN + seconds, UTC)
