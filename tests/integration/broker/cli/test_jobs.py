"""Commands about jobs."""

from __future__ import annotations

import json
import re

import pytest

from testing import jobs_service as wire
from testing.command_line import Tiercel
from testing.jobs_service import Script
from tiercel.v1 import common_pb2, jobs_pb2


def test_ls_lists_in_columns_that_cut_nothing_off(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j1"] = wire.job(delivered=1, best=0.9312)
    script.jobs["a-longer-id"] = wire.job("a-longer-id", jobs_pb2.JOB_STATE_COMPLETED, delivered=2)

    result = tiercel("ls")

    assert result.exit_code == 0
    header, first, second = result.stdout.splitlines()
    assert header.split() == ["ID", "NAME", "STATE", "EPOCH", "BEST", "TIERS", "SHARE", "ENDPOINT", "AGE"]
    assert first.startswith("j1           digits  running")
    assert "accuracy 0.9312  ✓0.9 v1  ·0.97  " in first
    assert "50 %" in first
    assert "✓0.97 v2" in second


def test_ls_can_leave_out_what_has_finished(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j2"] = wire.job("j2", jobs_pb2.JOB_STATE_COMPLETED)

    result = tiercel("ls", "--active")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "tiercel submit" in result.stderr
    assert json.loads(tiercel("ls", "--active", "--json").stdout) == []


def test_ls_as_json_has_stable_keys(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j1"] = wire.job(delivered=1)

    (job,) = json.loads(tiercel("ls", "--json").stdout)

    assert set(job) == {
        *("id", "tenant", "spec", "state", "reason", "submitted_at", "started_seconds", "finished_seconds", "tiers"),
        *("epoch", "latest_value", "best_value", "node_id", "share", "cpu_seconds", "attempts", "log_tail"),
        *("accelerator_seconds", "retries", "starts", "checkpoint_copied_seconds"),
        *("checkpoint_stored_seconds", "checkpoint_store_problem"),
    }
    assert set(job["tiers"][0]) == {
        *("number", "target", "value", "deadline_seconds", "hard", "state", "reached_value", "delivered_value"),
        *("reached_seconds", "delivered_seconds", "version", "reason"),
    }
    assert job["state"] == "running"


def test_show_says_all_and_moves_no_cursor(tiercel: Tiercel, script: Script) -> None:
    failed = wire.job(state=jobs_pb2.JOB_STATE_FAILED, delivered=1, reason="The script ended with exit code 1.")
    failed.log_tail = "Traceback\n\x1b[2JZeroDivisionError: [bold]division"
    script.jobs["j1"] = failed

    output = tiercel("show", "j1").stdout

    assert "state     failed: The script ended with exit code 1." in output
    assert "tier 1    ✓0.9 v1  delivered, reached with 0.9 after 4.0 s, answers with 0.9 after 5.0 s" in output
    assert "ZeroDivisionError: [bold]division" in output
    assert "\x1b" not in output


def test_show_says_where_copies_of_the_checkpoint_are(tiercel: Tiercel, script: Script) -> None:
    job = script.jobs["j1"] = wire.job()
    assert "copied" not in tiercel("show", "j1").stdout
    job.spec.copy_checkpoint_seconds = 60.0
    assert "copied    no checkpoint yet\n" in tiercel("show", "j1").stdout
    job.checkpoint_copied_seconds, job.checkpoint_stored_seconds = 12.0, 7.5
    job.checkpoint_store_problem = "the artefact store s3://lab does not answer\x1b[2J"
    assert (
        "copied    its checkpoint to the broker after 12.0 s\n"
        "stored    a copy in the artefact store after 7.5 s\n"
        "          the artefact store s3://lab does not answer"
    ) in tiercel("show", "j1").stdout


def test_show_of_a_job_that_is_not_there(tiercel: Tiercel) -> None:
    result = tiercel("show", "nobody")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: There is no job 'nobody'; see 'tiercel ls'.\n"


def test_cancel(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j1"] = wire.job()

    assert tiercel("cancel", "j1").stdout == "j1 is cancelled.\n"
    assert json.loads(tiercel("cancel", "j1", "--json").stdout)["state"] == "cancelled"


def test_resume(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_FAILED)

    assert tiercel("resume", "j1").stdout == "j1 is pending: resumed by its tenant.\n"
    job = json.loads(tiercel("resume", "j1", "--max-epochs", "200", "--json").stdout)
    assert (job["state"], job["spec"]["max_epochs"]) == ("pending", 200)


def test_suspend_retry_and_priority(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j1"] = wire.job()
    assert tiercel("suspend", "j1").stdout == "j1 is suspended: suspended by its tenant.\n"
    assert json.loads(tiercel("priority", "j1", "-7", "--json").stdout)["spec"]["priority"] == -7
    assert tiercel("priority", "j1", "3").stdout == "j1 has priority 3.\n"
    assert tiercel("priority", "j1", "300").exit_code == 2
    assert tiercel("retry", "j1").stdout == "j1 is pending: resumed by its tenant.\n"
    result = tiercel("retry", "j1", "--from-scratch")
    assert (result.stdout, "A new job, j9" in result.stderr) == ("j9 is pending: resumed by its tenant.\n", True)


@pytest.mark.parametrize("ending", [jobs_pb2.JOB_STATE_COMPLETED, jobs_pb2.JOB_STATE_MISSED])
def test_a_resumed_job_that_is_waited_for_is_followed_past_its_earlier_end(
    tiercel: Tiercel, script: Script, ending: jobs_pb2.JobState.ValueType
) -> None:
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_FAILED)
    script.ends_with["j1"] = wire.job(state=ending)
    script.events = [
        wire.state_changed(1, jobs_pb2.JOB_STATE_FAILED, "It crashed."),
        wire.state_changed(2, jobs_pb2.JOB_STATE_PENDING, "It was resumed."),
        wire.state_changed(3, ending, "It is over."),
    ]

    result = tiercel("resume", "j1", "--wait")

    assert "It is over." in result.stdout
    assert result.exit_code == {jobs_pb2.JOB_STATE_COMPLETED: 0, jobs_pb2.JOB_STATE_MISSED: 4}[ending]


def test_explain(tiercel: Tiercel, script: Script) -> None:
    script.jobs["j1"] = wire.job()
    assert "not decided" in tiercel("explain", "j1").stdout
    script.jobs["j1"].tiers[0].state, script.jobs["j1"].tiers[0].reason = (
        jobs_pb2.TIER_STATE_REACHED,
        "waits for a copy",
    )
    share = common_pb2.Share(cpu_weight=0.75, reason="It is nearest to its first tier.")
    script.decisions.append(
        jobs_pb2.Decision(at=wire.SUBMITTED, policy="tradl", trigger="tier", node_id="n1", share=share)
    )

    output = tiercel("explain", "j1").stdout

    assert "share     50 %: Half, since two jobs run." in output
    assert re.search(r"tier 1 .* reached: waits for a copy\n", output)
    assert output.splitlines()[-1].endswith("tier     tradl   n1    75 %   It is nearest to its first tier.")
    explanation = json.loads(tiercel("explain", "j1", "--json").stdout)
    assert explanation["decisions"][0]["share"]["reason"] == "It is nearest to its first tier."


@pytest.mark.parametrize("flags", [(), ("-f",), ("--follow",)])
def test_logs_are_passed_on_byte_by_byte(tiercel: Tiercel, script: Script, flags: tuple[str, ...]) -> None:
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_COMPLETED)
    script.logs["j1"] = "epoch 1 ✓\n".encode() + b"\xff\n"

    assert tiercel("logs", "j1", *flags).stdout_bytes == script.logs["j1"]
