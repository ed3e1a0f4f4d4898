"""CPU shares by control groups of version 1: ``cpu.shares`` and ``cpu.cfs_quota_us``, memory by the memory hierarchy.

Groups, in each hierarchy in use, below the group that the agent was started in::

    tiercel-NODE            all runs together
    └── run-RUN             one for each run
    tiercel-NODE-control    what answers: the agent, the inference server, the broker of this machine
    tiercel-NODE-serving    the inference server, in the memory hierarchy only

The two stand side by side, since weights compare only within one group: below a common one, training would compete with
applications on behalf of the inference server.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.limits import groups, mapping
from tiercel.trainer_agent.limits.contract import CpuShare, Usage
from tiercel.trainer_agent.limits.groups import GroupFolders, GroupWeights, KernelGroups, LimitsUnavailableError

_log = logging.getLogger(__name__)

_NEEDED: Final = {"cpu": "cpu.shares", "cpuacct": "cpuacct.usage"}
_WELCOME: Final = {"memory": "memory.limit_in_bytes"}


class CgroupV1:
    """Enforcement by cgroup v1.

    Args:
        weights: What the groups weigh, where an ordinary process has 1.
        own_groups: Paths of the agent's own groups by controller.

    Raises:
        LimitsUnavailableError: The hierarchies are missing or may not be written.
    """

    name = "cgroup-v1"

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
        self._runs = groups.NODE_PREFIX + node_id
        self._control = self._runs + groups.CONTROL_SUFFIX
        self._serving = self._runs + groups.SERVING_SUFFIX
        self._bases = _bases(root, own_groups)
        try:
            for base in self._unique():
                for folder in (self._control, self._runs):
                    self._folders.make(base / folder)
            cpu = self._bases["cpu"]
            for folder, weight in ((self._runs, weights.runs), (self._control, weights.control)):
                _write(cpu / folder / "cpu.shares", mapping.v1_group_shares(weight))
        except OSError as error:
            raise LimitsUnavailableError(f"cgroup v1 refuses a group of our own: {error}") from error

    @property
    def container_parent(self) -> str | None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; only where the engine sees the same path."""
        at_top = self._bases["cpu"] == self._hierarchy("cpu")
        return f"/{self._runs}" if at_top else None

    def open_run(self, run_id: str, *, cpu_cores: float, memory_bytes: int, share: CpuShare) -> CgroupV1Run:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; the kernel needs no number of cores."""
        del cpu_cores
        run = CgroupV1Run(self._folders_of(run_id), self._folders)
        run.prepare(memory_bytes, share)
        return run

    def reopen_run(self, run_id: str, *, cpu_cores: float, share: CpuShare) -> CgroupV1Run | None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        del cpu_cores, share
        of_run = self._folders_of(run_id)
        return CgroupV1Run(of_run, self._folders) if all(folder.is_dir() for folder in of_run.values()) else None

    def protect(self, pid: int) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; memory is not limited there."""
        for key in _NEEDED:
            _write(self._bases[key] / self._control / "cgroup.procs", pid)

    def serving_entry(self, memory_bytes: int) -> tuple[Path, ...]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        entry = [self._bases[key] / self._control / "cgroup.procs" for key in _NEEDED]
        if "memory" in self._bases:
            group = self._bases["memory"] / self._serving
            self._folders.make(group)
            _write(group / "memory.limit_in_bytes", memory_bytes)
            entry.append(group / "cgroup.procs")
        return tuple(entry)

    @property
    def beside_agent(self) -> tuple[Path, ...]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        memory = [self._bases["memory"] / "cgroup.procs"] if "memory" in self._bases else []
        return (*(self._bases[key] / self._control / "cgroup.procs" for key in _NEEDED), *memory)

    def open_templates(self, memory_bytes: int) -> CgroupV1Run:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        share = CpuShare(groups.TEMPLATES_WEIGHT)
        return self.open_run(groups.TEMPLATES, cpu_cores=1.0, memory_bytes=memory_bytes, share=share)

    def paces(self) -> Mapping[str, float]:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; always empty."""
        return {}

    def remove_leftovers(self, kept: Collection[str]) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`."""
        for base in self._unique():
            groups.remove_runs(base / self._runs, kept, self._folders)

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.Limits`; processes under protection go back."""
        for key, base in self._bases.items():
            for pid in (*groups.pids(base / self._control), *groups.pids(base / self._serving)):
                _move_back(base, pid, key)
        names = (self._control, self._runs, self._serving)
        everywhere = {base / folder for base in self._unique() for folder in names}
        # A container engine makes its parent group in every hierarchy there is.
        everywhere.update(self._root.glob(f"*/{self._runs}"))
        for folder in everywhere:
            _remove_if_possible(self._folders, folder)

    def _folders_of(self, run_id: str) -> dict[str, Path]:
        return {key: base / self._runs / (groups.RUN_PREFIX + run_id) for key, base in self._bases.items()}

    def _unique(self) -> set[Path]:
        return set(self._bases.values())

    def _hierarchy(self, controller: str) -> Path:
        return (self._root / controller).resolve()


class CgroupV1Run:
    """The groups of one run, one in each hierarchy.

    Args:
        by_controller: The run's folder by controller; hierarchies mounted together share one.
        folders: Makes and removes groups.
    """

    def __init__(self, by_controller: Mapping[str, Path], folders: GroupFolders) -> None:
        self._by_controller = by_controller
        self._folders = folders
        self._cpu = by_controller["cpu"]
        self._last_usage = Usage()

    def prepare(self, memory_bytes: int, share: CpuShare) -> None:
        """Make the groups and set their limits."""
        for folder in set(self._by_controller.values()):
            self._folders.make(folder)
        memory = self._by_controller.get("memory")
        if memory is not None and memory_bytes:
            _write(memory / "memory.limit_in_bytes", memory_bytes)
            if (memory / "memory.memsw.limit_in_bytes").exists():
                _write(memory / "memory.memsw.limit_in_bytes", memory_bytes)
        self.apply(share)

    @property
    def entry_files(self) -> tuple[Path, ...]:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        return tuple(folder / "cgroup.procs" for folder in sorted(set(self._by_controller.values())))

    def adopt(self, pid: int) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`; the process has entered by itself."""

    def apply(self, share: CpuShare) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        _write(self._cpu / "cpu.shares", mapping.v1_shares(share.weight))
        _write(self._cpu / "cpu.cfs_period_us", mapping.PERIOD_MICROSECONDS)
        quota = mapping.quota_microseconds(share.cap_cores)
        _write(self._cpu / "cpu.cfs_quota_us", -1 if quota is None else quota)

    def usage(self) -> Usage:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        cpu_seconds = groups.read_number(self._by_controller["cpuacct"] / "cpuacct.usage") / 1e9
        memory = self._by_controller.get("memory")
        memory_bytes = groups.read_number(memory / "memory.usage_in_bytes") if memory else 0
        self._last_usage = Usage(max(cpu_seconds, self._last_usage.cpu_seconds), memory_bytes)
        return self._last_usage

    def pids(self) -> list[int]:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        return groups.pids(self._cpu)

    def ran_out_of_memory(self) -> bool:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        memory = self._by_controller.get("memory")
        return memory is not None and groups.read_counter(memory / "memory.oom_control", "oom_kill") > 0

    def kill_all(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        groups.kill_all(self._cpu)

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.limits.contract.RunLimits`."""
        self.usage()
        for folder in set(self._by_controller.values()):
            groups.kill_all(folder)
            self._folders.remove(folder)


def _bases(root: Path, own_groups: Mapping[str, str]) -> dict[str, Path]:
    """The folder to make groups in, for each controller that is there."""
    bases: dict[str, Path] = {}
    for controller, file in (_NEEDED | _WELCOME).items():
        hierarchy = (root / controller).resolve()
        own = hierarchy / groups.without_own(own_groups.get(controller, ""))
        base = own if own.is_dir() else hierarchy
        # The topmost group lacks some of the files that its children have.
        if (base / "cgroup.procs").exists() and (controller != "cpu" or (base / file).exists()):
            bases[controller] = base
        elif controller in _NEEDED:
            raise LimitsUnavailableError(f"there is no cgroup v1 hierarchy with the {controller} controller at {root}")
    return bases


def _write(path: Path, value: int) -> None:
    path.write_text(str(value))


def _move_back(base: Path, pid: int, controller: str) -> None:
    try:
        _write(base / "cgroup.procs", pid)
    except ProcessLookupError:
        _log.debug("process %d ended before it left the %s group", pid, controller)


def _remove_if_possible(folders: GroupFolders, folder: Path) -> None:
    try:
        folders.remove(folder)
    except OSError as error:
        _log.warning("the control group %s stays behind: %s", folder, error)
