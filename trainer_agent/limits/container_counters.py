"""The kernel's counters of a container, read where the engine runs on the same machine: at once, and always fresh."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tiercel.trainer_agent.limits import groups
from tiercel.trainer_agent.limits.contract import Usage
from tiercel.trainer_agent.limits.cpu import groups_of


@dataclass(frozen=True, slots=True)
class ContainerCounters:
    """Where the kernel counts."""

    cpu: Path  # ``cpuacct.usage`` of version 1 or ``cpu.stat`` of version 2
    memory: Path  # ``memory.usage_in_bytes`` or ``memory.current``

    def read(self) -> Usage | None:
        """What the container has used; None once its groups are gone."""
        if not self.cpu.exists():
            return None
        if self.cpu.name == "cpu.stat":
            cpu_seconds = groups.read_counter(self.cpu, "usage_usec") / 1e6
        else:
            cpu_seconds = groups.read_number(self.cpu) / 1e9
        return Usage(cpu_seconds, groups.read_number(self.memory))

    def pids(self) -> list[int]:
        """The container's processes as this machine numbers them; none once its groups are gone."""
        return groups.pids(self.cpu.parent)


def find_counters(
    pid: int, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")
) -> ContainerCounters | None:
    """The counters of the groups that a container's first process is in.

    Returns:
        None where they are not visible, as when the engine runs elsewhere.
    """
    of_process = groups_of(proc, pid)
    cpuacct, memory = of_process.get("cpuacct", "/"), of_process.get("memory", "/")
    unified = of_process.get("", "/")
    candidates = (
        (cpuacct, root / "cpuacct" / cpuacct.lstrip("/") / "cpuacct.usage", "memory.usage_in_bytes"),
        (unified, root / unified.lstrip("/") / "cpu.stat", "memory.current"),
    )
    for group, cpu, memory_file in candidates:
        # A process at the top is in no group of its own: not what a container looks like from the same machine.
        if group != "/" and cpu.exists():
            if memory_file == "memory.current":
                return ContainerCounters(cpu, cpu.with_name(memory_file))
            return ContainerCounters(cpu, root / "memory" / memory.lstrip("/") / memory_file)
    return None
