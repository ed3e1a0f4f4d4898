from __future__ import annotations

from pathlib import Path

import pytest

from testing.load_record import MAX_FAILURES_TOLD, LoadRecord, Request, percentile_ms


def request(
    at: float, *, endpoint: str = "digits", latency: float = 0.01, version: int | None = 1, score: float | None = 1.0
) -> Request:
    return Request(at, endpoint, latency, version, score)


def failed(at: float) -> Request:
    return request(at, version=None, score=None)


def test_the_rate_is_that_of_due_requests() -> None:
    record = LoadRecord([request(100 + n / 50, latency=n) for n in range(101)])
    assert record.rate() == pytest.approx(50)


def test_the_slowest_second_shows_a_pause() -> None:
    record = LoadRecord([request(at) for at in (0.0, 0.1, 0.2, 1.5, 2.0, 2.1, 3.0)])
    assert record.slowest_second_rate() == 1


def test_no_requests_are_no_rate() -> None:
    assert LoadRecord().rate() == 0
    assert LoadRecord().slowest_second_rate() == 0


def test_the_first_answer_counts_when_it_is_there_not_when_it_was_asked_for() -> None:
    record = LoadRecord([request(10, latency=3, version=2), request(11, latency=0.5, version=2), request(9, version=1)])
    assert record.first_answer("digits", 2) == 11.5


def test_a_newer_version_fulfils_an_older_ones_promise() -> None:
    record = LoadRecord([request(10, version=1), request(11, latency=1, version=3)])
    assert record.first_answer("digits", 2) == 12
    assert record.first_answer("digits", 4) is None
    assert record.first_answer("other", 1) is None


def test_scores_are_means_by_version_and_leave_failures_out() -> None:
    record = LoadRecord([request(1, score=1.0), request(2, score=0.0), request(3, version=2, score=1.0), failed(4)])
    assert record.scores("digits") == {1: (0.5, 2), 2: (1.0, 1)}


def test_requests_near_any_swap_are_told_apart_by_when_they_were_due() -> None:
    record = LoadRecord(
        [
            request(8.9, latency=1),
            request(9.0, latency=2),
            request(11.0, latency=3, endpoint="other"),
            request(11.1, latency=4),
            failed(10.0),
        ]
    )
    assert record.split_by_swaps([10.0]) == ([2, 3], [1, 4])
    assert record.split_by_swaps([]) == ([], [1, 2, 3, 4])


def test_failures_are_all_counted_and_the_first_are_told() -> None:
    record = LoadRecord()
    for number in range(MAX_FAILURES_TOLD + 5):
        record.add_failure(failed(number), "status 503")
    assert record.failed == MAX_FAILURES_TOLD + 5
    assert len(record.failures) == MAX_FAILURES_TOLD


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    record = LoadRecord([request(1.25)], cpu_seconds=0.5)
    record.add_failure(failed(2.0), "the answer is not finite")
    record.write(tmp_path / "requests.json")
    assert LoadRecord.read(tmp_path / "requests.json") == record


def test_percentiles_are_in_milliseconds() -> None:
    assert percentile_ms([0.001, 0.002, 0.003], 50) == pytest.approx(2)
    assert percentile_ms([], 99) is None
