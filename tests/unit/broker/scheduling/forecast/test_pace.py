"""How fast nodes are, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.scheduling import job, reports
from tiercel.broker.scheduling.forecast.pace import Pace, Speeds
from tiercel.broker.scheduling.interface import JobView
from tiercel.core.jobs import Resources

NODES = ("fast", "slow")


def run(program: str, node_id: str, cpu_per_epoch: float, *, count: int = 6, number: int = 0) -> JobView:
    """A job that told so many reports on its node."""
    seen = reports(*(0.5,) * count, cpu_per_report=cpu_per_epoch)
    return replace(job(f"{program}-{node_id}-{number}", node_id=node_id), workload=program, observations=seen)


def after(*jobs: JobView, before: Speeds | None = None) -> Speeds:
    return (before or Speeds()).after([(None, each) for each in jobs], NODES)


def test_a_program_that_ran_on_two_nodes_tells_which_is_faster() -> None:
    speeds = after(*(run("p", name, cpu) for name, cpu in (("fast", 1.0), ("slow", 4.0))))
    # Twice and half the mean by one run each: pulled to what the node is held for by four guesses, and that to 1.
    general = math.log(2) / 5
    assert speeds.nodes == pytest.approx({"fast": general, "slow": -general})
    assert speeds.of("p", "fast") == pytest.approx(math.exp((math.log(2) + 4 * general) / 5))
    assert speeds.of("another", "slow") == pytest.approx(math.exp(-general))


def test_many_runs_are_believed() -> None:
    speeds = Speeds()
    for number in range(40):
        both = (run("p", name, cpu, number=number) for name, cpu in (("fast", 1.0), ("slow", 4.0)))
        speeds = after(*both, before=speeds)
    assert speeds.of("p", "fast") / speeds.of("p", "slow") == pytest.approx(4.0, rel=0.1)
    assert max(pace.runs for pace in speeds.programs["p"].on.values()) == 16


def test_each_program_has_its_own() -> None:
    speeds = Speeds()
    for number in range(40):
        told = [("p", "fast", 1.0), ("p", "slow", 4.0), ("q", "fast", 1.0), ("q", "slow", 1.2)]
        speeds = after(*(run(*each, number=number) for each in told), before=speeds)
    assert speeds.of("p", "fast") > speeds.of("q", "fast") * 1.3


@pytest.mark.parametrize(
    "jobs",
    [
        [],
        [run("p", "fast", 1.0)],
        [run("p", "fast", 1.0), run("q", "slow", 9.0)],
        [run("p", "fast", 1.0), run("p", "slow", 9.0, count=5)],
        [run("p", "fast", 1.0), run("p", "slow", 1.15)],
        [run("", "fast", 1.0), run("", "slow", 9.0)],
        [replace(run("p", name, cpu), resources=Resources(accelerators=1)) for name, cpu in (("fast", 1), ("slow", 9))],
        [run("p", "fast", 1.0), replace(run("p", "slow", 9.0), migrated_at=3.0)],
        [run("p", "fast", 1.0), replace(run("p", "slow", 9.0), movable=True)],
    ],
    ids=[
        "nothing",
        "one node",
        "two programs",
        "few reports",
        "chance",
        "no program",
        "accelerators",
        "moved",
        "waits",
    ],
)
def test_nothing_is_made_of_what_tells_nothing(jobs: list[JobView]) -> None:
    speeds = after(*jobs)
    assert {speeds.of(program, name) for program in "pq" for name in NODES} == {1.0}


def test_a_run_is_measured_once() -> None:
    told = run("p", "fast", 1.0)
    speeds = after(told)
    longer = replace(told, observations=reports(*(0.5,) * 30, cpu_per_report=9.0))
    assert speeds.after([(told, longer)], NODES) is speeds
    assert speeds.programs["p"].on["fast"] == Pace(0.0, 1)


def test_reports_that_make_no_sense_are_left_out() -> None:
    for cpu in (0.0, math.inf, math.nan, 1e-300):
        assert after(run("p", "fast", cpu)).programs == {}


def test_what_is_remembered_is_bounded_and_nodes_that_are_gone_are_forgotten() -> None:
    speeds = after(*(run(f"p{number}", "fast", 1.0) for number in range(300)))
    assert len(speeds.programs) == 256
    assert "p299" in speeds.programs
    speeds = after(run("p", "fast", 1.0), run("p", "slow", 9.0), before=speeds)
    assert speeds.after([], ["fast"]).of("p", "slow") == 1.0
