"""From news of jobs to the parts of their lives that a trace shows."""

from __future__ import annotations

from collections.abc import Iterator

from tiercel.broker.progress.job_spans import MOST_JOBS, JobSpans
from tiercel.core.endpoints import EndpointLoad, Version
from tiercel.core.events import (
    EndpointEvent,
    EndpointMeasured,
    Event,
    JobChange,
    JobEvent,
    ShareChanged,
    StateChanged,
    TierChanged,
)
from tiercel.core.jobs import JobState
from tiercel.core.shares import Share
from tiercel.core.tiers import Tier, TierState, TierStatus
from tiercel.core.traces import JobSpan

VERSION = Version(1, "j", 1, "accuracy", 0.9, 40.0, "ab")


def at(seconds: float, change: JobChange, job_id: str = "j") -> JobEvent:
    return JobEvent(int(seconds), job_id, "alice", seconds, change)


def state(seconds: float, value: JobState, reason: str = "", job_id: str = "j") -> JobEvent:
    return at(seconds, StateChanged(value, reason), job_id)


def measured(seconds: float, delay: float | None = 0.1) -> EndpointMeasured:
    return EndpointMeasured("e", "alice", seconds, "n1", None, EndpointLoad(1.0, delay))


def noted(spans: JobSpans, *events: Event) -> Iterator[JobSpan]:
    for event in events:
        yield from spans.note(event)


def parts(spans: JobSpans, *events: Event) -> list[tuple[str, float, float]]:
    return [(span.name, span.begin, span.end) for span in noted(spans, *events)]


def tier(value: TierState, reason: str = "") -> TierChanged:
    return TierChanged(TierStatus(1, Tier(0.9), value, 0.91, version=1, reason=reason))


def test_a_life_from_submission_to_the_first_answer() -> None:
    events = (
        state(1, JobState.PENDING),
        state(3, JobState.STARTING),
        at(3, ShareChanged("n1", Share(1.0))),
        state(5, JobState.RUNNING),
        at(30, tier(TierState.REACHED)),
        at(30, tier(TierState.REACHED)),
        at(40, tier(TierState.DELIVERED)),
        EndpointEvent("e", "alice", 40, VERSION),
        measured(41),
        measured(42, None),
        measured(43),
        measured(44),
        EndpointEvent("e", "alice", 45, VERSION),
        measured(50),
        state(60, JobState.COMPLETED),
    )
    assert parts(JobSpans(lambda _: False), *events) == [
        ("submit", 1, 1),
        ("place", 1, 3),
        ("run start", 3, 5),
        ("tier reached", 5, 30),
        ("delivery", 30, 40),
        ("first answer", 40, 43),
        ("run", 5, 60),
    ]


def test_what_began_before_the_broker_is_not_told_of() -> None:
    spans = JobSpans(lambda _: True)
    assert parts(spans, state(9, JobState.PENDING), at(9, tier(TierState.DELIVERED))) == []
    assert parts(spans, state(10, JobState.STARTING)) == [("place", 9, 10)]


def test_what_fails_says_why() -> None:
    spans = JobSpans(lambda _: False)
    told = list(
        noted(
            spans,
            state(1, JobState.RUNNING),
            at(2, tier(TierState.REACHED)),
            at(3, tier(TierState.FAILED, "no ONNX")),
            state(4, JobState.FAILED, "it ended with 1"),
        )
    )
    assert [(span.name, span.error) for span in told[1:]] == [("delivery", "no ONNX"), ("run", "it ended with 1")]


def test_of_more_jobs_than_may_be_remembered_the_oldest_are_forgotten() -> None:
    spans = JobSpans(lambda _: True)
    for number in range(MOST_JOBS + 10):
        assert parts(spans, state(1, JobState.STARTING, job_id=f"j{number}")) == []
    assert parts(spans, state(2, JobState.RUNNING, job_id="j0")) == []
    assert parts(spans, state(2, JobState.RUNNING, job_id=f"j{MOST_JOBS}")) == [("run start", 1, 2)]
