from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.limits.cpu import Capacity, detect, groups_of, stay_on


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_limits_it_is_what_the_process_may_run_on(tmp_path: Path, proc: Path) -> None:
    everything = Capacity(float(len(os.sched_getaffinity(0))), psutil.virtual_memory().total)
    assert detect(tmp_path / "cgroup", proc) == everything


def test_limits_of_cgroup_v2(tmp_path: Path, proc: Path) -> None:
    write(proc / "self" / "cgroup", "0::/box\n")
    write(tmp_path / "cgroup" / "box" / "cpu.max", "50000 100000\n")
    write(tmp_path / "cgroup" / "box" / "memory.max", "1048576\n")
    assert detect(tmp_path / "cgroup", proc) == Capacity(0.5, 1048576)
    write(tmp_path / "cgroup" / "box" / "cpu.max", "max 100000\n")
    write(tmp_path / "cgroup" / "box" / "memory.max", "max\n")
    assert detect(tmp_path / "cgroup", proc).cpu_cores == len(os.sched_getaffinity(0))


def test_limits_of_cgroup_v1(tmp_path: Path, proc: Path) -> None:
    write(proc / "self" / "cgroup", "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n")
    write(tmp_path / "cgroup" / "cpu" / "box" / "cpu.cfs_quota_us", "25000\n")
    write(tmp_path / "cgroup" / "cpu" / "box" / "cpu.cfs_period_us", "50000\n")
    write(tmp_path / "cgroup" / "memory" / "memory.limit_in_bytes", "2097152\n")  # a container sees only its top
    assert detect(tmp_path / "cgroup", proc) == Capacity(0.5, 2097152)
    write(tmp_path / "cgroup" / "cpu" / "box" / "cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "cgroup" / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
    assert detect(tmp_path / "cgroup", proc).cpu_cores == len(os.sched_getaffinity(0))


def test_groups_of(proc: Path) -> None:
    write(proc / "self" / "cgroup", "4:cpu,cpuacct:/a\n1:name=systemd:/b:c\n0::/d\n")
    assert groups_of(proc) == {"cpu": "/a", "cpuacct": "/a", "name=systemd": "/b:c", "": "/d"}


def test_a_slice_of_a_machine_is_kept_to_by_all_that_it_starts() -> None:
    one = min(os.sched_getaffinity(0))
    program = f"""
import os, subprocess, sys
from tiercel.trainer_agent.limits.cpu import detect, stay_on
stay_on(frozenset({{{one}}}))
print(detect().cpu_cores <= 1.0)
subprocess.run([sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], check=True)
"""
    told = subprocess.run([sys.executable, "-uc", program], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == ["True", str({one})]


def test_a_processor_that_is_not_there_is_named() -> None:
    with pytest.raises(SetupError, match="cannot run on processor 99999"):
        stay_on(frozenset({99999}))


def test_without_a_choice_nothing_changes() -> None:
    before = os.sched_getaffinity(0)
    stay_on(frozenset())
    assert os.sched_getaffinity(0) == before
