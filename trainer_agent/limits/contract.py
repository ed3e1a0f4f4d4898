"""What a way of enforcing shares has to offer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tiercel.core.shares import AcceleratorShare


@dataclass(frozen=True, slots=True)
class CpuShare:
    """What a run may use of its node's CPU."""

    weight: float  # fraction of the node under contention, in (0, 1]; what is left unused flows to others
    cap_cores: float | None = None  # hard ceiling in cores, or None


@dataclass(frozen=True, slots=True)
class Share:
    """What a run may use."""

    cpu: CpuShare  # of its node's CPU
    # Of those that it holds, in the order in which its program numbers them; the same ones from its start to its end.
    accelerators: tuple[AcceleratorShare, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has used."""

    cpu_seconds: float = 0.0  # CPU seconds since it started, never falling
    memory_bytes: int = 0  # memory it holds now, in bytes


class RunLimits(Protocol):
    """The confines of one run of the process runtime."""

    @property
    def entry_files(self) -> tuple[Path, ...]:
        """Files a process writes its own pid to in order to enter the confines before it runs anything."""

    def adopt(self, pid: int) -> None:
        """Learn the run's first process, which has entered already where there are entry files."""

    def apply(self, share: CpuShare) -> None:
        """Let ``share`` hold from now on."""

    def usage(self) -> Usage:
        """What the run has used so far."""

    def pids(self) -> list[int]:
        """The run's processes that live now, as the agent's machine numbers them."""

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel ended a process of the run for its memory limit."""

    def kill_all(self) -> None:
        """Kill whatever process is still inside; blocks for a moment until they are gone."""

    def close(self) -> None:
        """Kill what is left, and give the confines back. Doing it twice is harmless."""


class Limits(Protocol):
    """Enforcement of shares for all runs of a node."""

    @property
    def name(self) -> str:
        """``cgroup-v2``, ``cgroup-v1`` or ``cooperative``: what the node tells the broker."""

    @property
    def container_parent(self) -> str | None:
        """Control group that containers should live under to compete with process runs, if there is one."""

    def open_run(self, run_id: str, *, cpu_cores: float, memory_bytes: int, share: CpuShare) -> RunLimits:
        """Confine a run that is about to start.

        Args:
            run_id: Name of the run.
            cpu_cores: Cores it can use at the same time; its thread count.
            memory_bytes: Memory limit in bytes, 0 for none.
            share: Its first share.
        """

    def reopen_run(self, run_id: str, *, cpu_cores: float, share: CpuShare) -> RunLimits | None:
        """The confines of a run that an earlier life of this agent started; what holds there is left as it is.

        Args:
            run_id: Name of the run.
            cpu_cores: Cores it can use at the same time; its thread count.
            share: Its first share, for where nothing remembers the last one.

        Returns:
            None where it has none.
        """

    def protect(self, pid: int) -> None:
        """Move a process to where training cannot starve it: the agent itself, a broker on this machine."""

    def serving_entry(self, memory_bytes: int) -> tuple[Path, ...]:
        """Make the confines of the inference server: not starved by training, with memory of its own.

        Args:
            memory_bytes: What it may have in all, with the processes that it starts.

        Returns:
            Files a process writes its own pid to in order to enter.

        Raises:
            OSError: They cannot be made.
        """

    @property
    def beside_agent(self) -> tuple[Path, ...]:
        """Files a process writes its own pid to in order to be where the agent is."""

    def open_templates(self, memory_bytes: int) -> RunLimits | None:
        """Confine what runs are forked from, all of it together; to be closed before these limits are.

        Returns:
            None where the kernel confines nothing.

        Raises:
            OSError: It cannot be done.
        """

    def paces(self) -> Mapping[str, float]:
        """Cores that each run should pace itself to, 0 for no limit; empty where the kernel enforces shares."""

    def remove_leftovers(self, kept: Collection[str]) -> None:
        """Kill and remove what an earlier life of this node's agent left behind."""

    def close(self) -> None:
        """Give back everything; call it when no run is left."""
