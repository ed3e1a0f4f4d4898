"""How single things are printed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support import jobs_service as wire
from tiercel.broker.cli.output import age, clean, fed_by, memory, number
from tiercel.broker.client.conversion import job_from_wire


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200_000, "2d")])
def test_age(seconds: float, text: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert age(now - timedelta(seconds=seconds), now) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.93128, "0.9313"), (1234567.0, "1.235e+06"), (1.0, "1")])
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("size", "text"), [(512 << 20, "512MiB"), (3 << 29, "1.5GiB")])
def test_memory(size: int, text: str) -> None:
    assert memory(size) == text


def test_what_a_job_feeds() -> None:
    job = job_from_wire(wire.job())
    assert fed_by(job) == "digits"
    assert fed_by(replace(job, spec=replace(job.spec, variant="small"))) == "digits/small"


def test_control_characters_do_not_get_through() -> None:
    assert clean("a\x1b[2J\x07\x9b b\r\n\tc") == "a\ufffd[2J\ufffd\ufffd b\ufffd\n\tc"
