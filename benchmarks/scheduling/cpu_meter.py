"""CPU time of the product's own processes and of the whole machine, between two moments."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from testing.cpu import cpu_seconds
from testing.product import Product

_IDLE = {"idle", "iowait", "steal", "guest", "guest_nice"}
"""Fields of :func:`psutil.cpu_times` in which nobody of this machine worked, or that others count already."""


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds that were used by now."""

    processes: Mapping[str, float]  # by what they are: ``broker``, ``agent`` or ``serving``
    machine: float  # by all processes of the machine
    steal: float  # withheld by the machine's host
    bench: float  # by this process

    def since(self, earlier: CpuReading) -> CpuReading:
        """What was used between an earlier reading and this one."""
        processes = {name: max(0.0, used - earlier.processes.get(name, 0.0)) for name, used in self.processes.items()}
        return CpuReading(
            processes, self.machine - earlier.machine, self.steal - earlier.steal, self.bench - earlier.bench
        )


class CpuMeter:
    """Reads the CPU time of ``tiercel up``, of its agents and of their inference servers."""

    def __init__(self, product: Product) -> None:
        files = {"agent": "agent*/agent.lock", "serving": "agent*/serving.lock"}
        pids = [(name, _pid_in(path)) for name, glob in files.items() for path in product.state_dir.glob(glob)]
        self._processes = [(name, psutil.Process(pid)) for name, pid in pids if pid is not None]
        self._processes.append(("broker", psutil.Process(product.pid)))

    def read(self) -> CpuReading:
        """What was used by now; a process that has ended is left out."""
        used = dict.fromkeys(("broker", "agent", "serving"), 0.0)
        for name, process in self._processes:
            with contextlib.suppress(psutil.Error):
                used[name] += cpu_seconds(process)
        machine = psutil.cpu_times()._asdict()
        busy = sum(seconds for name, seconds in machine.items() if name not in _IDLE)
        return CpuReading(used, busy, machine.get("steal", 0.0), time.process_time())


def _pid_in(lock: Path) -> int | None:
    try:
        return int(lock.read_text(encoding="utf-8").strip())
    except (FileNotFoundError, ValueError):
        return None
