"""CPU shares by control groups of version 2: ``cpu.weight``, ``cpu.max`` and ``memory.max``.

The groups are those of :mod:`tiercel.trainer_agent.limits.cgroup_v1`, in the one hierarchy there is. They are made at
its top, or below the agent's own group where only that is delegated to it and no process lives in it directly.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from tiercel.trainer_agent.limits import groups, mapping
from tiercel.trainer_agent.limits.contract import CpuShare, Usage
from tiercel.trainer_agent.limits.groups import GroupFolders, GroupWeights, KernelGroups, LimitsUnavailableError

_log = logging.getLogger(__name__)


class CgroupV2:
    """Enforcement by cgroup v2.

    Args:
        weights: What the groups weigh, where an ordinary process has 1.
        own_groups: Paths of the agent's own groups by controller; the empty name is that of version 2.

    Raises:
        LimitsUnavailableError: The hierarchy lacks the cpu controller, or may not be written.
    """

    name = "cgroup-v2"

    def __init__(
        self,
        node_id: str,
        weights: GroupWeights,
        own_groups: Mapping[str, str],
        root: Path = Path("/sys/fs/cgroup"),
        folders: GroupFolders | None = None,
    ) -> None:
        self._folders = folders or KernelGroups()
        self._root = root
        self._runs_name = groups.NODE_PREFIX + node_id
        self._runs, self._has_memory = self._make_runs_group(own_groups)
        self._control = self._runs.with_name(self._runs_name + groups.CONTROL_SUFFIX)
        self._serving = self._runs.with_name(self._runs_name + groups.SERVING_SUFFIX)
        try:
            self._folders.make(self._control)
            self._folders.make(self._serving)
            for folder, weight in zip(self._all(), (weights.runs, weights.control, weights.control), strict=True):
                _write(folder / "cpu.weight", str(mapping.v2_group_weight(weight)))
        except OSError as error:
            self.close()
            raise LimitsUnavailableError(f"cgroup v2 refuses groups beside {self._runs}: {error}") from error

    @property
    def container_parent(self) -> str | None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; only where the engine sees the same path."""
        return f"/{self._runs_name}" if self._runs.parent == self._root else None

    def open_run(self, run_id: str, *, cpu_cores: float, memory_bytes: int, share: CpuShare) -> CgroupV2Run:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; the kernel needs no number of cores."""
        del cpu_cores
        run = CgroupV2Run(self._runs / (groups.RUN_PREFIX + run_id), self._folders)
        run.prepare(memory_bytes if self._has_memory else 0, share)
        return run

    def reopen_run(self, run_id: str, *, cpu_cores: float, share: CpuShare) -> CgroupV2Run | None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        del cpu_cores, share
        folder = self._runs / (groups.RUN_PREFIX + run_id)
        return CgroupV2Run(folder, self._folders) if folder.is_dir() else None

    def protect(self, pid: int) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        _write(self._control / "cgroup.procs", str(pid))

    def serving_entry(self, memory_bytes: int) -> tuple[Path, ...]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        if self._has_memory:
            _write(self._serving / "memory.max", str(memory_bytes))
        return (self._serving / "cgroup.procs",)

    @property
    def beside_agent(self) -> tuple[Path, ...]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        return (self._control / "cgroup.procs",)

    def open_templates(self, memory_bytes: int) -> CgroupV2Run:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        share = CpuShare(groups.TEMPLATES_WEIGHT)
        return self.open_run(groups.TEMPLATES, cpu_cores=1.0, memory_bytes=memory_bytes, share=share)

    def paces(self) -> Mapping[str, float]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; always empty."""
        return {}

    def remove_leftovers(self, kept: Collection[str]) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        groups.remove_runs(self._runs, kept, self._folders)

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; processes under protection go back."""
        for pid in (*groups.pids(self._control), *groups.pids(self._serving)):
            try:
                _write(self._runs.parent / "cgroup.procs", str(pid))
            except OSError as error:
                _log.debug("process %d does not leave the control group: %s", pid, error)
        for folder in self._all():
            try:
                self._folders.remove(folder)
            except OSError as error:
                _log.warning("the control group %s stays behind: %s", folder, error)

    def _all(self) -> tuple[Path, Path, Path]:
        return self._runs, self._control, self._serving

    def _make_runs_group(self, own_groups: Mapping[str, str]) -> tuple[Path, bool]:
        own = self._root / groups.without_own(own_groups.get("", ""))
        reasons = []
        for base in dict.fromkeys((self._root, own)):
            try:
                controllers = (base / "cgroup.controllers").read_text().split()
                if "cpu" not in controllers:
                    reasons.append(f"{base} has no cpu controller")
                    continue
                has_memory = "memory" in controllers
                _enable(base, memory=has_memory)
                self._folders.make(base / self._runs_name)
                _enable(base / self._runs_name, memory=has_memory)
            except OSError as error:
                reasons.append(str(error))
            else:
                return base / self._runs_name, has_memory
        raise LimitsUnavailableError("cgroup v2 cannot be used: " + "; ".join(reasons))


class CgroupV2Run:
    """The group of one run."""

    def __init__(self, folder: Path, folders: GroupFolders) -> None:
        self._folder = folder
        self._folders = folders
        self._last_usage = Usage()

    def prepare(self, memory_bytes: int, share: CpuShare) -> None:
        """Make the group and set its limits."""
        self._folders.make(self._folder)
        if memory_bytes:
            _write(self._folder / "memory.max", str(memory_bytes))
            if (self._folder / "memory.swap.max").exists():
                _write(self._folder / "memory.swap.max", "0")
        self.apply(share)

    @property
    def entry_files(self) -> tuple[Path, ...]:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        return (self._folder / "cgroup.procs",)

    def adopt(self, pid: int) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`; the process has entered by itself."""

    def apply(self, share: CpuShare) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        _write(self._folder / "cpu.weight", str(mapping.v2_weight(share.weight)))
        quota = mapping.quota_microseconds(share.cap_cores)
        _write(self._folder / "cpu.max", f"{'max' if quota is None else quota} {mapping.PERIOD_MICROSECONDS}")

    def usage(self) -> Usage:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        cpu_seconds = groups.read_counter(self._folder / "cpu.stat", "usage_usec") / 1e6
        memory_bytes = groups.read_number(self._folder / "memory.current")
        self._last_usage = Usage(max(cpu_seconds, self._last_usage.cpu_seconds), memory_bytes)
        return self._last_usage

    def pids(self) -> list[int]:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        return groups.pids(self._folder)

    def ran_out_of_memory(self) -> bool:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        return groups.read_counter(self._folder / "memory.events", "oom_kill") > 0

    def kill_all(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        groups.kill_all(self._folder)

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        self.usage()
        groups.kill_all(self._folder)
        self._folders.remove(self._folder)


def _enable(folder: Path, *, memory: bool) -> None:
    _write(folder / "cgroup.subtree_control", "+cpu +memory" if memory else "+cpu")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
