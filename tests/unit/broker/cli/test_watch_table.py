"""The live table on a small terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from testing import jobs_service as wire
from tiercel.broker.cli.job_view import WatchedJob
from tiercel.broker.cli.watch_table import WatchTable
from tiercel.core.jobs import JobState
from tiercel.core.views import JobInfo
from tiercel.core.wire import from_proto


def view(job_id: str, state: JobState) -> WatchedJob:
    job = from_proto(JobInfo, wire.job(job_id, best=0.95))
    return WatchedJob(
        replace(job, state=state, spec=replace(job.spec, name="a name that goes on for quite a while")), 0.1
    )


def drawn(views: list[WatchedJob], width: int, height: int, most_finished: int | None = None) -> list[str]:
    console = Console(width=width, height=height, file=StringIO())
    with console.capture() as captured:
        console.print(WatchTable(views, most_finished))
    return [line.rstrip() for line in captured.get().splitlines()]


MIXED = [
    *(view(f"done{number:02}aaaa", JobState.COMPLETED) for number in range(20)),
    view("failed12aaaa", JobState.FAILED),
    *(view(f"runs{number:02}aaaa", JobState.RUNNING) for number in range(4)),
    *(view(f"waits{number:02}aaa", JobState.PENDING) for number in range(3)),
    view("moves12aaaaa", JobState.DISCONNECTED),
]


def test_what_runs_comes_first_then_what_waits_then_what_has_finished_in_few_lines() -> None:
    lines = drawn(MIXED, 80, 24, most_finished=3)

    ids = [line.split()[0] for line in lines[1:-1]]
    assert [name[:4] for name in ids] == ["runs"] * 4 + ["move"] + ["wait"] * 3 + ["fail"] + ["done"] * 2
    assert ids[-1] == "done18aaaa", "the latest"
    assert lines[-1] == "and 18 completed; 'tiercel ls' lists all"


@pytest.mark.parametrize("width", [60, 80, 100, 150, 250])
def test_each_job_takes_one_line_and_nothing_of_a_number_is_cut_off(width: int) -> None:
    lines = drawn(MIXED, width, 24)

    assert len(lines) <= 23, "the terminal does not scroll"
    assert max(map(len, lines)) <= width
    assert width < 80 or lines[0].split()[:2] == ["JOB", "NAME"]
    for line in lines[1:6]:
        assert "accuracy 0.9" in line
        assert "·0.9" in line
        assert "·0.97" in line


def test_named_jobs_are_all_shown_while_there_is_room() -> None:
    lines = drawn([view(f"j{number}", JobState.COMPLETED) for number in range(10)], 80, 24)

    assert len(lines) == 11


def test_more_jobs_run_than_there_are_lines() -> None:
    lines = drawn([view(f"j{number:02}", JobState.RUNNING) for number in range(50)], 80, 24)

    assert len(lines) == 23
    assert lines[-1] == "and 29 running; 'tiercel ls' lists all"
