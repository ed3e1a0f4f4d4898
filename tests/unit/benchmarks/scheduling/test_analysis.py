from __future__ import annotations

import pytest

from benchmarks.averages import bootstrap_interval
from benchmarks.scheduling.analysis import (
    controller_cores,
    cpu_against_alone,
    gain,
    in_time,
    job_ratios,
    makespan,
    served_quality,
    stood_still,
    time_to_delivery,
    time_to_tier,
    worst_ratio,
)
from benchmarks.scheduling.outcome import RunOutcome, Served
from benchmarks.scheduling.recordings import Recordings
from tests.support.scheduling_runs import job_outcome, recording, run_outcome


def run_of(arm: str, repetition: int, *reached: float) -> RunOutcome:
    jobs = [
        job_outcome(f"job-{number}", reached=(each, each + 1.0), finished=each + 2.0)
        for number, each in enumerate(reached)
    ]
    return run_outcome(arm, jobs, repetition=repetition, makespan=max(reached) + 2.0)


RUNS = [run_of("fair", 0, 4.0, 8.0), run_of("fifo", 0, 3.0, 6.0), run_of("fair", 1, 10.0, 10.0)]
RUNS += [run_of("fifo", 1, 5.0, 5.0), run_of("fair", 2, 1.0, 2.0)]


def test_means_are_over_jobs() -> None:
    assert time_to_tier(1)(RUNS[0]) == 6.0
    assert time_to_tier(2)(RUNS[0]) == 7.0
    assert time_to_delivery(1)(RUNS[0]) == 6.5


def test_a_gain_is_the_mean_over_blocks_that_both_ran_in() -> None:
    found = gain(RUNS, "fifo", "fair", time_to_tier(1))
    assert found is not None
    assert found.mean == pytest.approx((0.25 + 0.5) / 2)
    assert (found.blocks, found.wins, found.low, found.high) == (2, 2, None, None)
    assert gain(RUNS, "las", "fair", makespan) is None


def test_a_gain_of_three_blocks_has_an_interval() -> None:
    found = gain([*RUNS, run_of("fifo", 2, 1.0, 2.0)], "fifo", "fair", time_to_tier(1))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.0 <= found.low < found.mean < found.high <= 0.5
    assert found.wins == 2


def test_a_run_that_missed_a_tier_does_not_compare() -> None:
    broken = run_outcome("fifo", [job_outcome("job-0", reached=(0.1, None), finished=0.2)], repetition=2)
    assert gain([*RUNS, broken], "fifo", "fair", time_to_tier(1)) == gain(RUNS, "fifo", "fair", time_to_tier(1))


def test_the_interval_is_narrow_where_values_are_alike_and_always_the_same() -> None:
    assert bootstrap_interval([0.3, 0.3, 0.3]) == pytest.approx((0.3, 0.3))
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    low, high = bootstrap_interval(values)
    assert 0.1 < low < 0.35 < high < 0.6
    assert bootstrap_interval(values) == (low, high)


def test_jobs_are_held_against_themselves_in_the_same_block() -> None:
    ratios = job_ratios(RUNS, "fifo", "fair", lambda job: job.reached_seconds[0])
    assert ratios == pytest.approx([0.75, 0.75, 0.5, 0.5])
    assert worst_ratio(RUNS, "fifo", "fair", lambda job: job.finished_seconds) == pytest.approx(5 / 6)
    assert worst_ratio(RUNS, "las", "fair", lambda job: job.finished_seconds) is None


def test_cpu_is_held_against_recordings_of_all_jobs_or_not_at_all() -> None:
    run = run_outcome(jobs=[job_outcome("a", cpu=5.0), job_outcome("b", kind="gru-small", cpu=7.0)])
    known = {("cnn-small", 0): recording(cpu=4.0), ("gru-small", 0): recording("gru-small", cpu=6.0)}
    assert cpu_against_alone(run, Recordings(known)) == pytest.approx(1.2)
    assert cpu_against_alone(run, Recordings({("cnn-small", 0): recording()})) is None
    assert controller_cores(run) == pytest.approx(0.01)


def served(*quality: float) -> Served:
    return Served(quality, tuple(1 for _ in quality), tuple(1 for _ in quality), 10, 0, 1.0)


@pytest.mark.parametrize(
    ("live", "satisfied", "part", "still"),
    [
        ((0, 1, 2, 2), (0, 1, 2, 2), 1.0, False),
        ((0, 0, 0, 1, 1, 1), (0, 0, 0, 1, 0, 0), 1 / 3, False),  # nobody was asked in the first three
        ((1, 1, 2, 2, 2), (1, 0, 0, 0, 2), 3 / 8, True),
        ((1, 1, 2, 2, 2), (0, 0, 1, 0, 0), 1 / 8, False),
        ((0, 0), (0, 0), 0.0, False),
    ],
)
def test_answers_in_time_and_seconds_in_a_row_without_any(
    live: tuple[int, ...], satisfied: tuple[int, ...], part: float, *, still: bool
) -> None:
    seen = Served((), satisfied, live, 10, 0, 1.0)
    assert in_time(seen) == pytest.approx(part)
    assert stood_still(seen) is still


def test_served_quality_goes_on_as_it_ended_until_the_longest_run_s_end() -> None:
    runs = {
        "short": run_outcome("short", served=served(0.0, 1.0, 1.0, 1.0, 0.2)),
        "long": run_outcome("long", served=served(0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.1)),
    }
    # One endpoint, eight seconds: the short run's cut-off second and what follows count as its last whole ones.
    assert served_quality(runs) == pytest.approx({"short": (3.0 + 4 * 1.0) / 8, "long": (1.5 + 0.5) / 8})
    assert served_quality({"fair": run_outcome()}) == {}
