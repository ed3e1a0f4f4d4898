from __future__ import annotations

from datetime import UTC, datetime

from benchmarks.demo_jobs import JOBS
from benchmarks.timeline import FirstAnswer, JobTrack, Timeline
from tests.support.demo_events import BEGAN, job_info, made_up_timeline
from tiercel import JobState
from tiercel.broker.client import JobEvent, ProgressEvent, ShareEvent, StateEvent
from tiercel.core.shares import Share

ABOUT = {"job_id": "job0", "tenant": "alice"}


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(BEGAN + seconds, UTC)


def track_of(*events: JobEvent, job: int = 0) -> JobTrack:
    track = JobTrack.of(job_info(job, JOBS[job]))
    for event in events:
        track.add(event)
    return track


def progress(seconds: float, value: float) -> ProgressEvent:
    return ProgressEvent(1, ABOUT["job_id"], ABOUT["tenant"], at(seconds), 1, value, {}, 2.0)


def share(seconds: float, weight: float) -> ShareEvent:
    return ShareEvent(1, at=at(seconds), node_id="n", share=Share(weight, reason="because"), **ABOUT)


def test_the_best_value_follows_the_direction() -> None:
    assert track_of(progress(1, 0.5), progress(2, 0.4)).best == 0.5
    assert track_of(progress(1, 200), progress(2, 210), job=3).best == 200


def test_the_first_share_is_no_move_and_the_same_share_again_is_none() -> None:
    assert track_of(share(1, 0.5)).moves == 0
    assert track_of(share(1, 0.5), share(2, 0.5), share(3, 0.2), share(4, 0.5)).moves == 2


def test_a_finished_job_has_no_share() -> None:
    done = StateEvent(1, at=at(9), state=JobState.COMPLETED, reason="", **ABOUT)
    assert track_of(share(1, 0.5)).share == 0.5
    assert track_of(share(1, 0.5), done).share is None


def test_it_is_over_when_all_jobs_have_ended() -> None:
    ended, going_on = made_up_timeline(), made_up_timeline()
    next(iter(going_on)).state = JobState.RUNNING
    assert [ended.is_over, going_on.is_over, Timeline().is_over] == [True, False, False]


def test_events_of_jobs_that_are_not_ours_are_ignored() -> None:
    timeline = Timeline()
    timeline.add(progress(1, 0.5))
    assert list(timeline) == []


def test_swaps_are_points_in_time_in_order() -> None:
    timeline = made_up_timeline()
    swaps = timeline.swaps()
    assert len(swaps) == sum(len(track.tiers) for track in timeline)
    assert swaps == sorted(swaps)
    assert timeline.began_at < swaps[0]
    assert swaps[-1] <= timeline.ended_at


def test_the_version_that_answers_is_the_newest_that_answered() -> None:
    timeline = Timeline(first_answers=[FirstAnswer("digits", 2, 5.0), FirstAnswer("digits", 1, 4.0)])
    assert timeline.answering("digits") == 2
    assert timeline.answering("other") is None
