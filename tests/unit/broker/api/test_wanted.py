from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from testing.jobs import SHARE, make_spec
from tiercel.broker.actors.node_messages import Wanted
from tiercel.broker.actors.peers import WantedRun
from tiercel.broker.api.wanted import wanted_to_proto
from tiercel.broker.store.logs import RunLogs
from tiercel.core.jobs import Job, Script
from tiercel.core.runs import Run


def test_a_hundred_runs_with_scripts_of_1_mib_are_wanted_without_them(tmp_path: Path) -> None:
    content = b"#" * 2**20
    spec = make_spec(module="", script=Script("train.py", content))
    jobs = [Job(f"j{number}", "alice", spec, 0.0, run=Run(f"j{number}", 1, "n1", SHARE)) for number in range(100)]
    wanted = Wanted(1, tuple(WantedRun(job) for job in jobs), ())
    message = wanted_to_proto(wanted, RunLogs(tmp_path))
    assert message.ByteSize() < 100_000
    assert {run.script_sha256 for run in message.runs} == {hashlib.sha256(content).hexdigest()}
    assert {run.spec.script.name for run in message.runs} == {"train.py"}


def test_a_job_without_a_script_has_none_to_fetch(tmp_path: Path) -> None:
    job = Job("j1", "alice", make_spec(), 0.0, run=Run("j1", 1, "n1", SHARE))
    (run,) = wanted_to_proto(Wanted(1, (WantedRun(job),), ()), RunLogs(tmp_path)).runs
    assert (run.script_sha256, run.spec.module) == ("", "package.train")


def test_a_run_whose_time_is_over_is_wanted_to_finish(tmp_path: Path) -> None:
    run = Run("j1", 1, "n1", SHARE)
    jobs = [Job("j1", "alice", make_spec(), 0.0, run=each) for each in (run, replace(run, finishing_from=60.0))]
    message = wanted_to_proto(Wanted(1, tuple(map(WantedRun, jobs)), ()), RunLogs(tmp_path))
    assert [(each.finish, each.stop) for each in message.runs] == [(False, False), (True, False)]
