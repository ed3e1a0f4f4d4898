"""Who computes first on the cores of a node, and for how long at a time, beyond what weights say."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.limits.thread_scheduling import family, set_giving_way, set_time_slice

LEAST_IN_FRONT: Final = 0.05
"""Who gets a smaller part of the cores that it could use has been left a floor and nothing else, and gives way."""


@dataclass(frozen=True, slots=True)
class CpuPriority:
    """What holds for all runs of a node."""

    slice_seconds: float = 0.0  # how long training computes at a time; see :func:`.set_time_slice`
    # Cores of the node, of which weights are fractions; 0 where nobody gives way, since the kernel does not enforce
    # weights, or does not let the agent take it back.
    node_cores: float = 0.0


KERNEL_DEFAULT: Final = CpuPriority()


class RunPriority:
    """The priority of one run."""

    def __init__(self, priority: CpuPriority, cpu_cores: float) -> None:
        self._priority = priority
        self._cpu_cores = cpu_cores
        self._gives_way = False

    def begin(self, pid: int, share: CpuShare) -> None:
        """Its first process was started.

        Args:
            pid: The process, as this machine numbers it.
            share: The run's first share.
        """
        set_time_slice(pid, self._priority.slice_seconds)
        self.apply(lambda: family(pid), share)

    def resume(self, pid: int) -> None:
        """Its first process was started by an earlier life of the agent.

        Args:
            pid: The process, as this machine numbers it.
        """
        with contextlib.suppress(ProcessLookupError):
            self._gives_way = os.sched_getscheduler(pid) == os.SCHED_IDLE

    def apply(self, pids: Callable[[], Sequence[int]], share: CpuShare) -> None:
        """Let it give way, or no longer, where its share makes a difference.

        Args:
            pids: Gives its processes that live now; called only if something changes.
            share: What holds from now on.
        """
        gives_way = share.weight * self._priority.node_cores < LEAST_IN_FRONT * self._cpu_cores
        if self._priority.node_cores and gives_way != self._gives_way:
            set_giving_way(pids, gives_way=gives_way)
            self._gives_way = gives_way
