"""What is told of a job in full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testing import jobs_service as wire
from tiercel.broker.cli.details import job_lines
from tiercel.core.jobs import Script
from tiercel.core.projects import Project
from tiercel.core.views import JobInfo
from tiercel.core.wire import from_proto

PROGRAM = {"script": None, "module": "", "command": (), "image": "", "project": None, "arguments": ("--lr", "1")}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"script": Script("train.py", b"")}, "train.py --lr 1"),
        ({"module": "digits.train"}, "digits.train --lr 1"),
        ({"image": "trainer:1"}, "image trainer:1 --lr 1"),
        ({"command": ("python", "a.py"), "project": Project("0" * 64)}, "python a.py --lr 1 in project 000000000000"),
        ({"module": "a\x1b[2J"}, "a\ufffd[2J --lr 1"),
    ],
)
def test_a_program_is_told_with_where_it_comes_from(fields: dict[str, Any], text: str) -> None:
    job = from_proto(JobInfo, wire.job())

    lines = job_lines(replace(job, spec=replace(job.spec, **(PROGRAM | fields))))

    assert f"program   {text}" in lines


def test_a_retraining_says_what_it_is_to_replace() -> None:
    job = from_proto(JobInfo, wire.job())
    labels = {"tiercel/repeats": "4f0c9a1e", "tiercel/retrains": "3"}
    lines = job_lines(replace(job, spec=replace(job.spec, labels=labels)))
    assert "retrains  version 3, which was too seldom right, by repeating job 4f0c9a1e" in lines
