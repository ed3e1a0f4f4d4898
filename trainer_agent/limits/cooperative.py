"""Shares without the kernel's help: the trainer library is asked to use that many cores on average.

Good enough where control groups may not be used; a script that does not cooperate is not held back, and memory is
not limited.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from tiercel.core.filling import fill
from tiercel.trainer_agent.limits.contract import CpuShare, Usage


class Cooperative:
    """Works out how many cores each run should pace itself to."""

    name = "cooperative"
    container_parent = None
    beside_agent: tuple[Path, ...] = ()

    def __init__(self, node_cores: float) -> None:
        self._node_cores = node_cores
        self._runs: dict[str, CooperativeRun] = {}

    def open_run(self, run_id: str, *, cpu_cores: float, memory_bytes: int, share: CpuShare) -> CooperativeRun:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; memory cannot be limited this way."""
        del memory_bytes
        self._runs[run_id] = CooperativeRun(run_id, cpu_cores, share, self._runs)
        return self._runs[run_id]

    def reopen_run(self, run_id: str, *, cpu_cores: float, share: CpuShare) -> CooperativeRun:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        return self.open_run(run_id, cpu_cores=cpu_cores, memory_bytes=0, share=share)

    def protect(self, pid: int) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; there is nothing to protect it with."""

    def serving_entry(self, memory_bytes: int) -> tuple[Path, ...]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; there is nothing to enter."""
        del memory_bytes
        return ()

    def open_templates(self, memory_bytes: int) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; there is nothing to confine them with."""
        del memory_bytes

    def paces(self) -> Mapping[str, float]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        runs = self._runs.values()
        given = fill([run.share.weight for run in runs], [run.bound_cores for run in runs], self._node_cores)
        return {
            run_id: 0.0 if cores >= run.cpu_cores else cores
            for (run_id, run), cores in zip(self._runs.items(), given, strict=True)
        }

    def remove_leftovers(self, kept: Collection[str]) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; nothing of it outlives the agent."""

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        self._runs.clear()


class CooperativeRun:
    """One run: its claim, and what its processes have used.

    Args:
        run_id: Name of the run.
        cpu_cores: Cores it can use at the same time.
        share: Its first share.
        siblings: Where it is entered; it leaves when it is closed.
    """

    entry_files: tuple[Path, ...] = ()

    def __init__(self, run_id: str, cpu_cores: float, share: CpuShare, siblings: dict[str, CooperativeRun]) -> None:
        self.cpu_cores = cpu_cores
        self.share = share
        self._run_id = run_id
        self._siblings = siblings
        self._process: psutil.Process | None = None
        self._usage = Usage()

    @property
    def bound_cores(self) -> float:
        """The most it can and may use."""
        return self.cpu_cores if self.share.cap_cores is None else min(self.cpu_cores, self.share.cap_cores)

    def adopt(self, pid: int) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        try:
            self._process = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    def apply(self, share: CpuShare) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`; takes effect by the next paces."""
        self.share = share

    def usage(self) -> Usage:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`; over the tree of living processes."""
        cpu_seconds, memory_bytes = 0.0, 0
        for process in self._tree():
            try:
                times = process.cpu_times()
                memory_bytes += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            cpu_seconds += times.user + times.system + times.children_user + times.children_system
        self._usage = Usage(max(cpu_seconds, self._usage.cpu_seconds), memory_bytes)
        return self._usage

    def pids(self) -> list[int]:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`; the processes that can still be found."""
        return [process.pid for process in self._tree()]

    def ran_out_of_memory(self) -> bool:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`; there is no limit to run into."""
        return False

    def kill_all(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`; the processes that can still be found."""
        for process in self._tree():
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        self.kill_all()
        self._siblings.pop(self._run_id, None)

    def _tree(self) -> list[psutil.Process]:
        if self._process is None or not self._process.is_running():
            return []
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
