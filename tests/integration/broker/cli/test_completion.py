"""What the shell is offered, asked as bash asks."""

from __future__ import annotations

import os
import subprocess
import sys

from testing import jobs_service as wire
from testing.free_ports import free_port
from testing.jobs_service import TOKEN, Script
from tiercel.v1 import jobs_pb2


def offered(*words: str) -> list[str]:
    """What bash is told for the last of these words; nothing else may be said."""
    environment = {
        **os.environ,
        "TIERCEL_TOKEN": TOKEN,
        "_TIERCEL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("tiercel", *words)),
        "COMP_CWORD": str(len(words)),
    }
    result = subprocess.run(
        [sys.executable, "-m", "tiercel"], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert result.stderr == ""
    return result.stdout.split()


def offered_in_time(*words: str) -> list[str]:
    """The same, asked again while nothing is offered: the shell waits for a second only."""
    return next((offers for _ in range(20) if (offers := offered(*words))), [])


def test_ids_of_jobs_and_names_of_endpoints_are_completed(address: str, script: Script) -> None:
    for job_id, state in (("k1", jobs_pb2.JOB_STATE_COMPLETED), ("k2", jobs_pb2.JOB_STATE_RUNNING)):
        script.jobs[job_id] = wire.job(job_id, state)
    script.jobs["m1"] = wire.job("m1")
    script.endpoints.append(jobs_pb2.Endpoint(name="digits"))

    assert offered_in_time("show", "--broker", address, "k") == ["k2", "k1"]
    assert offered_in_time("cancel", "--broker", address, "k") == ["k2"]
    assert offered_in_time("watch", "--broker", address, "k1", "m") == ["m1"]
    assert offered_in_time("infer", "--broker", address, "d") == ["digits"]
    assert offered_in_time("endpoints", "delete", "--broker", address, "d") == ["digits"]
    assert offered_in_time("rollback", "--broker", address, "d") == ["digits"]


def test_without_a_broker_nothing_is_offered_and_nothing_is_said() -> None:
    assert offered("show", "--broker", f"127.0.0.1:{free_port()}", "k") == []
    assert offered("show", "--state-dir", "/nowhere", "k") == []
