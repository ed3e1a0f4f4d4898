"""Cores and memory that this machine really lets us use."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from tiercel.core.errors import SetupError

_UNLIMITED_MEMORY = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63


@dataclass(frozen=True, slots=True)
class Capacity:
    """What runs may use."""

    cpu_cores: float  # cores, possibly a fraction where a quota is set
    memory_bytes: int  # memory in bytes


def detect(cgroup_root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> Capacity:
    """Ask the kernel: the process's CPU affinity and the limits of the control groups it is in."""
    groups = groups_of(proc)
    cores = float(len(os.sched_getaffinity(0)))
    quota = _cpu_quota(cgroup_root, groups)
    limit = _memory_limit(cgroup_root, groups)
    total = psutil.virtual_memory().total
    return Capacity(
        cpu_cores=cores if quota is None else min(cores, quota),
        memory_bytes=total if limit is None else min(total, limit),
    )


def stay_on(cpus: frozenset[int]) -> None:
    """Run on these processors only, with all that is started from here on: a node that is a slice of a machine.

    Args:
        cpus: Their numbers; empty to leave it as it is.

    Raises:
        SetupError: Some of them are not there, or may not be used.
    """
    if not cpus:
        return
    usable = os.sched_getaffinity(0)
    if not cpus <= usable:
        missing, there = (", ".join(map(str, sorted(numbers))) for numbers in (cpus - usable, usable))
        raise SetupError(f"The agent cannot run on processor {missing}: it may use {there}.")
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - names are wanted
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


def groups_of(proc: Path = Path("/proc"), pid: int | str = "self") -> dict[str, str]:
    """Paths of a process's control groups by controller; the one of cgroup v2 has the empty name.

    Args:
        proc: Where the process file system is.
        pid: The process; by default this one.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return {}
    groups: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _cpu_quota(root: Path, groups: dict[str, str]) -> float | None:
    fields = _read(_inside(root, groups.get("")) / "cpu.max").split()
    if len(fields) == 2 and fields[0] != "max":
        return int(fields[0]) / int(fields[1])
    folder = _inside(root / "cpu", groups.get("cpu"))
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


def _memory_limit(root: Path, groups: dict[str, str]) -> int | None:
    for text in (
        _read(_inside(root, groups.get("")) / "memory.max"),
        _read(_inside(root / "memory", groups.get("memory")) / "memory.limit_in_bytes"),
    ):
        if text and text != "max" and int(text) < _UNLIMITED_MEMORY:
            return int(text)
    return None


def _inside(root: Path, group: str | None) -> Path:
    """Folder of a group below its hierarchy's mount; the mount itself where the group is not visible from here."""
    folder = root / (group or "").lstrip("/")
    return folder if folder.is_dir() else root


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
