"""``tiercel events``, ``tiercel top`` where nobody watches, and ``tiercel doctor``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testing import jobs_service as wire
from testing.command_line import Tiercel
from testing.free_ports import free_port
from testing.jobs_service import Script
from tiercel.broker.cli import app, checks
from tiercel.broker.cli.checks import CHECKS, Finding, State
from tiercel.broker.cli.session import Target
from tiercel.v1 import jobs_pb2


@pytest.fixture
def two_jobs(script: Script) -> Script:
    script.jobs["j1"], script.jobs["j2"] = wire.job(), wire.job("j2")
    script.events = [
        wire.state_changed(1, jobs_pb2.JOB_STATE_RUNNING),
        wire.progress_made(2, 0.5, "j2"),
        wire.progress_made(3, 0.95),
    ]
    return script


def test_events_of_all_jobs_are_lines(tiercel: Tiercel, two_jobs: Script) -> None:
    lines = tiercel("events").stdout.splitlines()
    assert [line.split("  ", 3)[1:] for line in lines] == [
        ["j1", "digits", "running"],
        ["j2", "digits", "epoch 2: 0.5"],
        ["j1", "digits", "epoch 3: 0.95"],
    ]


def test_events_behind_a_number_as_json(tiercel: Tiercel, two_jobs: Script) -> None:
    events = [json.loads(line) for line in tiercel("events", "--json", "--after", "1").stdout.splitlines()]
    assert [(event["job_id"], event["sequence"]) for event in events] == [("j2", 2), ("j1", 3)]


def test_top_where_nobody_watches_is_printed_once(tiercel: Tiercel, two_jobs: Script) -> None:
    plain, told = tiercel("top"), json.loads(tiercel("top", "--json").stdout)
    assert plain.exit_code == 0
    assert [line.split()[0] for line in plain.stdout.splitlines() if line] == ["NODE", "ID", "j1", "j2"]
    assert {name: len(each) for name, each in told.items()} == {"nodes": 0, "jobs": 2, "endpoints": 0}


def test_doctor_finds_what_is_there_and_what_fails(tmp_path: Path) -> None:
    (tmp_path / "addresses.json").write_text(json.dumps({"broker": f"127.0.0.1:{free_port()}", "mqtt": "127.0.0.1:1"}))
    (tmp_path / "tenants.toml").write_text('[default]\ntoken = "t"\n')
    result = CliRunner().invoke(app, ["doctor", "--json", "--state-dir", str(tmp_path)])
    found = {each["check"]: each for each in json.loads(result.stdout)}

    assert list(found) == list(CHECKS)
    assert result.exit_code == 1
    assert found["broker"]["state"] == "fail"
    assert found["mqtt"]["state"] == "warn"
    assert "mqtt 127.0.0.1:1" in found["ports"]["found"]
    assert found["python"]["state"] == "ok"
    assert all(each["mend"].endswith(".") for each in found.values() if each["state"] != "ok")


def test_doctor_without_a_broker_is_no_failure_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_LEAST_FREE_BYTES", 0)
    result = CliRunner().invoke(app, ["doctor", "--state-dir", str(tmp_path / "none")])
    assert result.exit_code == 0, result.output
    assert "none was started here" in result.output


def test_a_full_disk_is_a_failure_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_LEAST_FREE_BYTES", 2**62)
    finding: Finding = CHECKS["disk"](Target(tmp_path, "", "default"))
    assert finding.state is State.FAIL
    assert "tiercel du" in finding.mend
