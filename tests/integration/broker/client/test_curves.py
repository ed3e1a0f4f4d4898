"""Curves and data frames of jobs that go on, and what is said without pandas."""

from __future__ import annotations

import sys

import pytest

from testing import jobs_service as wire
from testing.jobs_service import Script
from tiercel import Client, InvalidSpecError
from tiercel.broker.client.listing import Listing
from tiercel.core.errors import SetupError
from tiercel.v1 import jobs_pb2

REPORTS = 5


@pytest.fixture
def _learning(script: Script) -> None:
    """A job that has reported five times and goes on."""
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_RUNNING)
    script.events = [wire.state_changed(1, jobs_pb2.JOB_STATE_RUNNING)]
    script.events += [wire.progress_made(2 + n, 0.5 + n / 10) for n in range(REPORTS)]


@pytest.mark.usefixtures("_learning")
async def test_a_curve_is_what_was_reported_so_far_also_over_a_break(client: Client, script: Script) -> None:
    script.breaks = [3]
    curve = await client.job("j1").curve()
    assert [point.value for point in curve.points] == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert script.open_watches == 0
    assert "<polyline" in curve._repr_html_()
    assert [report.sequence for report in (await client.job("j1").curve(limit=2)).reports] == [5, 6]


@pytest.mark.usefixtures("_learning")
async def test_frames_have_a_row_a_report_and_a_row_a_job(client: Client) -> None:
    frame = await client.job("j1").to_frame()
    assert list(frame["accuracy"]) == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert set(frame["job"]) == {"j1"}
    assert set(frame.columns) > {"epoch", "seconds", "cpu_seconds"}
    jobs = await client.frame(["j1"])
    assert list(jobs["state"]) == ["running"]
    listed = await client.list_jobs()
    assert isinstance(listed, Listing)
    assert "j1" in listed._repr_html_()


@pytest.mark.usefixtures("_learning")
async def test_what_cannot_be_asked_for_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (0, 10_001):
        with pytest.raises(InvalidSpecError, match="limit: "):
            await client.job("j1").curve(limit)
    with pytest.raises(InvalidSpecError, match="jobs: "):
        await client.frame(["j1"] * 201)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SetupError, match=r"pip install 'tiercel\[notebook\]'"):
        await client.job("j1").to_frame()
