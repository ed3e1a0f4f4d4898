"""``tiercel watch``."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from testing import jobs_service as wire
from testing.command_line import Tiercel
from testing.jobs_service import TOKEN, Script
from tiercel.v1 import jobs_pb2

COMPLETED = jobs_pb2.JOB_STATE_COMPLETED


@pytest.fixture
def running(script: Script) -> Script:
    """A job that runs when it is looked at, and ends in the course of its events."""
    script.jobs["j1"] = wire.job()
    script.events = [
        wire.state_changed(1, jobs_pb2.JOB_STATE_RUNNING),
        wire.share_changed(2, 0.5),
        wire.progress_made(3, 0.5),
        wire.progress_made(4, 0.95),
        wire.tier_changed(5, wire.tier_status(1, 0.9, delivered=True)),
        wire.state_changed(6, COMPLETED, "Every tier is delivered."),
    ]
    script.ends_with["j1"] = wire.job(state=COMPLETED, delivered=2)
    return script


def test_a_line_for_each_event_where_nobody_watches(tiercel: Tiercel, running: Script) -> None:
    result = tiercel("watch", "j1")

    assert result.exit_code == 0
    lines = [line.split("  ", 3)[1:] for line in result.stdout.splitlines()]
    assert lines == [
        ["j1", "digits", "running"],
        ["j1", "digits", "share 50 % of n1: Because."],
        ["j1", "digits", "epoch 3: 0.5"],
        ["j1", "digits", "epoch 4: 0.95"],
        ["j1", "digits", "tier 1 (0.9) delivered as version 1"],
        ["j1", "digits", "completed: Every tier is delivered."],
    ]


def test_json_lines(tiercel: Tiercel, running: Script) -> None:
    events = [json.loads(line) for line in tiercel("watch", "j1", "--json").stdout.splitlines()]

    assert [event["event"] for event in events] == ["state", "share", "progress", "progress", "tier", "state"]
    assert events[4]["tier"]["version"] == 1
    assert {event["job_id"] for event in events} == {"j1"}


def test_several_jobs_until_the_last_has_ended(tiercel: Tiercel, running: Script) -> None:
    running.jobs["j2"] = wire.job("j2")
    running.jobs["j3"] = wire.job("j3")
    running.events += [
        wire.progress_made(7, 0.1, "j3"),
        wire.state_changed(8, jobs_pb2.JOB_STATE_FAILED, "It crashed.", "j2"),
    ]
    failed = running.ends_with["j2"] = wire.job("j2", jobs_pb2.JOB_STATE_FAILED)
    failed.log_tail = "\n".join(f"line {number}" for number in range(20)) + "\nKeyError: \x1b[31m'age'\n"

    result = tiercel("watch", "j1", "j2")

    assert result.exit_code == 3, "one of them failed"
    assert "j2  digits  failed: It crashed." in result.stdout
    assert "j3" not in result.stdout
    assert result.stdout.splitlines()[-6:] == [
        "Last output of j2 ('tiercel logs j2' has all of it):",
        *(f"  line {number}" for number in range(16, 20)),
        "  KeyError: \ufffd[31m'age'",
    ]


def test_a_job_that_has_ended_already(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j1"] = wire.job(state=COMPLETED)

    assert tiercel("watch", "j1").exit_code == 0
    script.jobs["j2"] = wire.job("j2", jobs_pb2.JOB_STATE_MISSED)
    assert tiercel("watch", "j1", "j2").exit_code == 4, "one of them missed a tier"
    assert "WatchJobs" not in script.calls


def test_a_job_that_is_not_there(tiercel: Tiercel) -> None:
    assert tiercel("watch", "nobody").exit_code == 1


@pytest.mark.parametrize(("command", "shown"), [("ls", "accuracy"), ("watch", "digits v2")])
def test_on_a_terminal(address: str, running: Script, command: str, shown: str) -> None:
    arguments = [command] if command == "ls" else [command, "j1"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tiercel", *arguments, "--broker", address],
        stdout=theirs,
        env={**os.environ, "TIERCEL_TOKEN": TOKEN, "TERM": "xterm", "COLUMNS": "150"},
    ) as process:
        os.close(theirs)
        output = _read_all(ours)
        assert process.wait(20) == 0

    assert "\x1b[" in output, "colours on a terminal"
    assert shown in output


def _read_all(descriptor: int) -> str:
    output = b""
    try:
        while chunk := os.read(descriptor, 4096):
            output += chunk
    except OSError:
        # What Linux says when the other side of a terminal is closed.
        pass
    finally:
        os.close(descriptor)
    return output.decode()
