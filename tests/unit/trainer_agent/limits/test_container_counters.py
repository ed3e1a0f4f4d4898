from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tiercel.trainer_agent.limits.container_counters import find_counters
from tiercel.trainer_agent.limits.contract import Usage


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    return tmp_path / "proc"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_v1(tmp_path: Path, proc: Path) -> None:
    root = tmp_path / "cgroup"
    write(proc / "7" / "cgroup", "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n")
    write(root / "cpuacct" / "docker" / "x" / "cpuacct.usage", "1500000000\n")
    write(root / "memory" / "docker" / "x" / "memory.usage_in_bytes", "4096\n")
    counters = find_counters(7, root, proc)
    assert counters is not None
    assert counters.read() == Usage(1.5, 4096)
    shutil.rmtree(root)
    assert counters.read() is None


def test_cgroup_v2(tmp_path: Path, proc: Path) -> None:
    root = tmp_path / "cgroup"
    write(proc / "7" / "cgroup", "0::/system.slice/docker-x.scope\n")
    write(root / "system.slice" / "docker-x.scope" / "cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
    write(root / "system.slice" / "docker-x.scope" / "memory.current", "8192\n")
    counters = find_counters(7, root, proc)
    assert counters is not None
    assert counters.read() == Usage(2.5, 8192)


def test_a_process_of_another_machine_has_none_here(tmp_path: Path, proc: Path) -> None:
    assert find_counters(8, tmp_path / "cgroup", proc) is None
    write(proc / "7" / "cgroup", "3:cpu,cpuacct:/\n0::/\n")
    write(tmp_path / "cgroup" / "cpuacct" / "cpuacct.usage", "1\n")
    write(tmp_path / "cgroup" / "cpu.stat", "usage_usec 1\n")
    assert find_counters(7, tmp_path / "cgroup", proc) is None
