"""A run hands its models over with its own CPU, and trains no further meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.simulation import scenario, steps
from tiercel.broker.scheduling.fifo import FifoPolicy
from tiercel.broker.scheduling.interface import Plan, Snapshot
from tiercel.broker.scheduling.queue import QueueState
from tiercel.broker.scheduling.srpt_oracle import OracleSnapshot
from tiercel.broker.simulation import simulate
from tiercel.broker.simulation.result import JobOutcome
from tiercel.broker.simulation.workload import exports_cpu_seconds
from tiercel.core.jobs import JobState

# Start-up of one CPU second, a report after each second of training; exports of half a second and a quarter.
EXPORTING = steps(0.5, 0.9, exports=(0.5, 0.25))


def reached(job: JobOutcome) -> list[float | None]:
    return [job.time_to_tier(1), job.time_to_tier(2)]


def answered(job: JobOutcome) -> list[float | None]:
    return [job.time_to_answer(1), job.time_to_answer(2)]


def test_training_waits_for_an_export_and_the_model_answers_after_it() -> None:
    (job,) = simulate(scenario((0, EXPORTING)), "fair").jobs
    assert reached(job) == [2.0, 3.5]
    assert answered(job) == [3.0, 4.25]  # half a second after the export, in these scenarios
    assert (job.cpu_seconds, job.alone_seconds) == (3.75, 3.75)
    assert [tier.true_work for tier in job.tiers] == [2.0, 3.5]


def test_two_tiers_reached_at_once_are_exported_one_after_the_other() -> None:
    result = simulate(scenario((0, steps(0.9, exports=(0.5, 0.25)))), "fair")
    assert answered(result.jobs[0]) == [3.0, 3.25]
    assert [result.mean_time_to_answer(number) for number in (1, 2, 3)] == [
        3.0,
        3.25,
        pytest.approx(float("nan"), nan_ok=True),
    ]
    assert [tier.true_work for tier in result.jobs[0].tiers] == [2.0, 2.0]


def test_a_run_that_ends_hands_over_first() -> None:
    (job,) = simulate(scenario((0, replace(EXPORTING, continue_after_last_tier=True))), "fair").jobs
    assert (answered(job), job.state) == ([3.0, 4.25], JobState.COMPLETED)


def test_exports_take_as_long_as_the_share_of_the_cpu_makes_them() -> None:
    first, second = simulate(scenario((0, EXPORTING), (0, EXPORTING)), "fair").jobs
    assert reached(first) == reached(second) == [4.0, 7.0]
    assert answered(first) == answered(second) == [5.5, 8.0]


def test_who_keeps_its_place_hands_over_at_full_speed() -> None:
    first, _ = simulate(scenario((0, EXPORTING), (0, EXPORTING)), "fifo").jobs
    # 99 % of the core until tier 1 answers; at the floor of 1 % the export alone would have taken 50 seconds.
    assert first.time_to_tier(1) == pytest.approx(2 / 0.99)
    assert first.time_to_answer(1) == pytest.approx(2.5 / 0.99 + 0.5)


class Watcher(FifoPolicy):
    """Notes what it is told of the work to tier 2 and of what was used."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[float] = []

    def plan(self, snapshot: Snapshot, state: QueueState) -> tuple[Plan, QueueState]:
        assert isinstance(snapshot, OracleSnapshot)
        self.left += [snapshot.true_work[job.id][1] - job.cpu_seconds for job in snapshot.jobs]
        return super().plan(snapshot, state)


def test_an_oracle_knows_of_the_exports_before_a_tier() -> None:
    watcher = Watcher()
    simulate(scenario((0, EXPORTING)), watcher)
    # At 0, 1, 2 (tier 1 is reached), 3 (it answers, half a second of training is left) and 3.5 seconds.
    assert watcher.left == pytest.approx([3.5, 2.5, 1.5, 0.5, 0.0])


def test_exports_have_a_first_one_that_costs_more() -> None:
    assert [exports_cpu_seconds(count, 0.5, 0.25) for count in range(4)] == [0.0, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("name", ["first_export_cpu_seconds", "export_cpu_seconds"])
def test_an_export_cannot_give_cpu_back(name: str) -> None:
    with pytest.raises(ValueError, match="exports"):
        replace(EXPORTING, **{name: -0.1})  # type: ignore[arg-type] # by name
