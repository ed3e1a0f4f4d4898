from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from benchmarks.report import build_bars, build_report, find_shortfalls
from benchmarks.timeline import Timeline
from testing.load_record import LoadRecord, Request
from tests.support.demo_events import HAND_OVER_SECONDS, made_up_record, made_up_timeline
from tiercel import JobState, TierState


@pytest.fixture
def timeline() -> Timeline:
    return made_up_timeline()


@pytest.fixture
def record(timeline: Timeline) -> LoadRecord:
    return made_up_record(timeline)


def report_of(timeline: Timeline, record: LoadRecord) -> dict[str, Any]:
    return build_report(timeline, record, mqtt_messages=321, runtime="process", policy="tradl")


def test_the_report_has_the_promised_fields(timeline: Timeline, record: LoadRecord) -> None:
    report = report_of(timeline, record)
    assert {"jobs", "requests", "mqtt_messages", "reallocations", "runtime"} <= report.keys()
    for job in report["jobs"]:
        assert {"id", "endpoint", "tiers"} <= job.keys()
        for tier in job["tiers"]:
            assert {"target", "metric", "reached_s", "delivered_s", "version"} <= tier.keys()
    assert {"total", "failed", "p50_ms", "p99_ms", "swap_window_p99_ms"} <= report["requests"].keys()
    assert (report["mqtt_messages"], report["runtime"]) == (321, "process")


def test_tiers_come_with_times_since_their_own_job_was_submitted(timeline: Timeline, record: LoadRecord) -> None:
    for job in report_of(timeline, record)["jobs"]:
        for number, tier in enumerate(job["tiers"], 1):
            assert tier["delivered_s"] == pytest.approx(tier["reached_s"] + HAND_OVER_SECONDS)
            assert tier["version"] == number
            assert tier["metric"] == tier["target"]


def test_a_swap_lasts_from_the_report_to_the_first_answer(timeline: Timeline, record: LoadRecord) -> None:
    report = report_of(timeline, record)
    assert len(report["swap_seconds"]) == sum(len(track.tiers) for track in timeline)
    assert report["swap_seconds_median"] == pytest.approx(HAND_OVER_SECONDS, abs=0.2)


def test_requests_near_a_swap_are_those_of_all_endpoints(timeline: Timeline) -> None:
    swap = timeline.swaps()[0]
    endpoints = [track.endpoint for track in timeline]
    near = [Request(swap + offset, endpoints[-1], 0.2, 1, 1.0) for offset in (-1.0, 0.0, 1.0)]
    rest = [Request(swap - 2, endpoints[0], 0.1, 1, 1.0)]
    requests = report_of(timeline, LoadRecord(near + rest))["requests"]
    assert requests["swap_window_requests"] == 3
    assert requests["swap_window_p99_ms"] == pytest.approx(200)
    assert requests["rest_p99_ms"] == pytest.approx(100)


def test_all_bars_but_the_length_hold_for_what_went_well(timeline: Timeline, record: LoadRecord) -> None:
    bars = build_bars(report_of(timeline, record))
    assert {bar.name: bar.holds for bar in bars if not bar.holds}.keys() == {"the whole work"}
    assert len(bars) == 6


def test_nothing_fell_short_when_all_went_well(timeline: Timeline, record: LoadRecord) -> None:
    assert find_shortfalls(report_of(timeline, record), timeline) == []


def test_a_tier_that_was_not_delivered_is_told_with_the_jobs_reason(timeline: Timeline, record: LoadRecord) -> None:
    track = next(iter(timeline))
    track.tiers[-1] = dataclasses.replace(
        track.tiers[-1], state=TierState.FAILED, delivered_seconds=None, delivered_value=None, version=None
    )
    track.state, track.reason, track.log_tail = JobState.FAILED, "the script crashed", "epoch 3\nValueError: no data\n"
    report = report_of(timeline, record)
    (sentence,) = find_shortfalls(report, timeline)
    assert track.name in sentence
    assert "0.97" in sentence
    assert sentence.endswith("the script crashed. Its last line of output: ValueError: no data")
    bars = {bar.name: bar for bar in build_bars(report)}
    assert not bars["tiers delivered"].holds
    assert bars["the whole work"].value is None


def test_failed_requests_are_told_with_the_first_reason(timeline: Timeline, record: LoadRecord) -> None:
    record.add_failure(Request(timeline.began_at + 30, "digits", 0.1, None, None), "status 503")
    report = report_of(timeline, record)
    (sentence,) = find_shortfalls(report, timeline)
    assert sentence.startswith("1 of")
    assert "status 503" in sentence
    assert not build_bars(report)[1].holds


def test_an_application_that_never_asked_is_a_shortfall(timeline: Timeline) -> None:
    report = report_of(timeline, LoadRecord())
    assert any("no request" in sentence for sentence in find_shortfalls(report, timeline))
    holding = {bar.name for bar in build_bars(report) if bar.holds}
    assert "requests a second, total" not in holding
    assert "p99 of requests near a swap over p99 of the rest" not in holding
