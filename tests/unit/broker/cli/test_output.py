"""How single things are printed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from testing import jobs_service as wire
from tiercel.broker.cli.output import (
    DECISION_COLUMNS,
    ENDPOINT_COLUMNS,
    JOB_COLUMNS,
    age,
    clean,
    columns_left_out,
    fed_by,
    number,
    part,
    print_table,
)
from tiercel.core.views import JobInfo
from tiercel.core.wire import from_proto


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200_000, "2d")])
def test_age(seconds: float, text: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert age(now - timedelta(seconds=seconds), now) == text


def test_what_is_not_known_is_a_dash() -> None:
    assert [number(None), number(0.93128), part(None), part(0.5)] == ["-", "0.9313", "-", "50 %"]


def test_what_a_job_feeds() -> None:
    job = from_proto(JobInfo, wire.job())
    assert fed_by(job) == "digits"
    assert fed_by(replace(job, spec=replace(job.spec, variant="small"))) == "digits/small"


def test_control_characters_do_not_get_through() -> None:
    assert clean("a\x1b[2J\x07\x9b b\r\n\tc") == "a\ufffd[2J\ufffd\ufffd b\ufffd\n\tc"


ENDPOINTS = [
    (
        *("digits", "12", "accuracy", "0.9731", "j4k2m8x1", "", "3.21 of 50 ms", "4.5 ms", "100 %", "50 %"),
        *("tenant", "local,far", "127.0.0.1:41234"),
    ),
    ("faces", "-", "-", "-", "-", "", "-", "-", "-", "-", "key", "far", "127.0.0.1:41234"),
]


def test_an_endpoint_takes_one_line_on_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tiercel.broker.cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")

    print_table(ENDPOINT_COLUMNS, ENDPOINTS)

    header, digits, faces, rest = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert header.split("  ")[0] == "NAME"
    assert digits.startswith("digits  12")
    assert "0.9731" in digits
    assert "3.21 of 50 ms" in digits
    assert "127.0.0.1:41234" in digits
    assert faces.startswith("faces")
    assert rest.startswith("no room for the columns ")
    assert rest.endswith("; --json has all")
    assert max(map(len, (header, digits, faces, rest))) <= 80


def test_wide_terminals_leave_nothing_out_and_names_are_never_left_out() -> None:
    assert columns_left_out(ENDPOINT_COLUMNS, ENDPOINTS, 200) == set()
    # What says nothing goes first.
    assert columns_left_out(ENDPOINT_COLUMNS, ENDPOINTS, 120) == {"ANSWERS"}
    for columns in (ENDPOINT_COLUMNS, JOB_COLUMNS, DECISION_COLUMNS):
        rows = [tuple("x" * 30 for _ in columns)]
        assert columns_left_out(columns, rows, 10) <= set(columns) - {"NAME", "ID", "STATE", "REASON"}
