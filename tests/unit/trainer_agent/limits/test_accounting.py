from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.trainer_agent.limits.accounting import KernelAccount
from tiercel.trainer_agent.limits.contract import Usage

PID = 4711
V1 = "9:cpu,cpuacct:/tiercel-n/runs/c0ffee\n4:memory:/tiercel-n/runs/c0ffee\n0::/\n"
V2 = "0::/system.slice/docker-c0ffee.scope\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / str(PID)).mkdir(parents=True)
    return tmp_path / "proc"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def in_groups(proc: Path, text: str) -> None:
    (proc / str(PID) / "cgroup").write_text(text)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_version_1_counts_in_two_hierarchies(proc: Path, root: Path) -> None:
    in_groups(proc, V1)
    write(root / "cpuacct/tiercel-n/runs/c0ffee/cpuacct.usage", "2500000000\n")
    write(root / "memory/tiercel-n/runs/c0ffee/memory.usage_in_bytes", "4096\n")
    account = KernelAccount.of_process(PID, "c0ffee", proc=proc, root=root)
    assert account is not None
    assert account.usage() == Usage(2.5, 4096)


def test_version_2_counts_in_one(proc: Path, root: Path) -> None:
    in_groups(proc, V2)
    write(root / "system.slice/docker-c0ffee.scope/cpu.stat", "usage_usec 1500000\nuser_usec 1\n")
    write(root / "system.slice/docker-c0ffee.scope/memory.current", "8192\n")
    account = KernelAccount.of_process(PID, "c0ffee", proc=proc, root=root)
    assert account is not None
    assert account.usage() == Usage(1.5, 8192)


def test_a_group_that_is_gone_has_no_usage(proc: Path, root: Path) -> None:
    in_groups(proc, V2)
    counter = root / "system.slice/docker-c0ffee.scope/cpu.stat"
    write(counter, "usage_usec 1\n")
    account = KernelAccount.of_process(PID, "c0ffee", proc=proc, root=root)
    assert account is not None
    counter.unlink()
    assert account.usage() is None


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param("0::/system.slice/docker-decade.scope\n", id="the number belongs to another process by now"),
        pytest.param("0::/../../docker-c0ffee.scope\n", id="outside of the namespace that can be seen"),
        pytest.param("0::/elsewhere/docker-c0ffee.scope\n", id="nothing is mounted there"),
        pytest.param("", id="no groups"),
    ],
)
def test_groups_that_are_not_the_runs_or_cannot_be_seen_are_no_account(proc: Path, root: Path, groups: str) -> None:
    in_groups(proc, groups)
    write(root / "system.slice/docker-decade.scope/cpu.stat", "usage_usec 1\n")
    assert KernelAccount.of_process(PID, "c0ffee", proc=proc, root=root) is None


def test_a_process_that_is_gone_has_no_account(proc: Path, root: Path) -> None:
    assert KernelAccount.of_process(PID + 1, "c0ffee", proc=proc, root=root) is None
