from __future__ import annotations

import subprocess
import sys

import pytest

from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.limits.cooperative import Cooperative


def test_paces_follow_shares_and_do_not_hold_back_who_has_room() -> None:
    limits = Cooperative(2.0)
    run = limits.open_run("a-1", cpu_cores=2.0, memory_bytes=0, share=CpuShare(0.75))
    assert limits.paces() == {"a-1": 0.0}  # alone it may use the whole node
    limits.open_run("b-1", cpu_cores=2.0, memory_bytes=0, share=CpuShare(0.25))
    assert limits.paces() == pytest.approx({"a-1": 1.5, "b-1": 0.5})
    run.apply(CpuShare(0.75, cap_cores=0.5))
    assert limits.paces() == pytest.approx({"a-1": 0.5, "b-1": 1.5})
    run.close()
    run.close()
    assert limits.paces() == {"b-1": 0.0}
    limits.close()
    assert limits.paces() == {}


def test_usage_counts_children_and_never_falls() -> None:
    script = (
        "import os, sys, time\nif os.fork() == 0:\n    while True: pass\nprint('ready', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    run = Cooperative(2.0).open_run("a-1", cpu_cores=1.0, memory_bytes=0, share=CpuShare(1.0))
    run.adopt(process.pid)
    while run.usage().cpu_seconds < 0.2:
        pass
    assert run.usage().memory_bytes > 0
    used = run.usage().cpu_seconds
    run.close()
    process.wait(30)
    process.stdout.close()
    assert run.usage().cpu_seconds >= used
    assert run.usage().memory_bytes == 0
    assert not run.ran_out_of_memory()


def test_a_process_that_is_gone_already_has_used_nothing() -> None:
    run = Cooperative(2.0).open_run("a-1", cpu_cores=1.0, memory_bytes=0, share=CpuShare(1.0))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    run.adopt(process.pid)
    assert run.usage().cpu_seconds == 0.0
    run.kill_all()
