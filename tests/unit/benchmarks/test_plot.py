from __future__ import annotations

from pathlib import Path

import matplotlib.image

from benchmarks.demo_jobs import JOBS
from benchmarks.plot import draw, message
from benchmarks.timeline import Timeline
from testing.load_record import LoadRecord
from tests.support.demo_events import job_info, made_up_record, made_up_timeline


def test_the_title_says_what_came_out() -> None:
    timeline = made_up_timeline()
    record = made_up_record(timeline)
    assert message(timeline, record).startswith("12 of 12 tiers of 4 models went live while they trained; 0 of ")


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    timeline = made_up_timeline()
    draw(timeline, made_up_record(timeline), tmp_path / "demo.png")
    picture = matplotlib.image.imread(tmp_path / "demo.png")
    assert picture.shape[1] >= 1600
    assert picture.std() > 0.1


def test_jobs_that_never_reported_and_requests_that_were_never_sent_are_drawn_too(tmp_path: Path) -> None:
    timeline = Timeline()
    for number, job in enumerate(JOBS):
        timeline.submitted(job_info(number, job))
    draw(timeline, LoadRecord(), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
