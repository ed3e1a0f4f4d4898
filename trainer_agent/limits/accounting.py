"""What a control group that somebody else made, such as a container engine, has used: read from the kernel's files.

An engine tells the same, but takes up to two seconds a time; a script may report several times a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tiercel.trainer_agent.limits import groups
from tiercel.trainer_agent.limits.contract import Usage

_PROC = Path("/proc")
_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class KernelAccount:
    """The account of one control group. Made by :meth:`of_process`.

    Attributes:
        cpu: The folder that counts CPU time.
        memory: The folder that counts memory, or None where nothing does.
        is_v1: Whether they are of cgroup version 1.
    """

    cpu: Path
    memory: Path | None
    is_v1: bool

    @classmethod
    def of_process(cls, pid: int, name: str, *, proc: Path = _PROC, root: Path = _ROOT) -> Self | None:
        """The account of the group that a process is in.

        Args:
            pid: The process.
            name: What the group's path has to contain: a process id alone may have passed on to another.
            proc: Where processes are to be found.
            root: Where the hierarchies are mounted.

        Returns:
            The account, or None when the process is gone, is in another group, or its group cannot be seen from here.
        """
        paths = _group_paths(proc / str(pid) / "cgroup")
        is_v1 = "cpuacct" in paths
        cpu, memory = (paths.get("cpuacct"), paths.get("memory")) if is_v1 else (paths.get(""), paths.get(""))
        if cpu is None or name not in cpu or ".." in cpu:
            return None
        account = cls(
            _folder(root / "cpuacct" if is_v1 else root, cpu),
            None if memory is None else _folder(root / "memory" if is_v1 else root, memory),
            is_v1,
        )
        return account if account.usage() is not None else None

    def usage(self) -> Usage | None:
        """What the group has used, or None when it is gone."""
        counter = self.cpu / ("cpuacct.usage" if self.is_v1 else "cpu.stat")
        if not counter.exists():
            return None
        if self.is_v1:
            cpu_seconds = groups.read_number(counter) / 1e9
        else:
            cpu_seconds = groups.read_counter(counter, "usage_usec") / 1e6
        return Usage(cpu_seconds, self._memory_bytes())

    def _memory_bytes(self) -> int:
        if self.memory is None:
            return 0
        return groups.read_number(self.memory / ("memory.usage_in_bytes" if self.is_v1 else "memory.current"))


def _group_paths(file: Path) -> dict[str, str]:
    """Paths of a process's groups by controller; that of cgroup v2 has an empty name."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    paths = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _folder(hierarchy: Path, path: str) -> Path:
    return hierarchy / path.lstrip("/")
