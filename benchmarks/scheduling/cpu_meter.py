"""CPU time of the product's own processes and of the whole machine, between two moments."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.product import Product

_IDLE = {"idle", "iowait", "steal", "guest", "guest_nice"}
"""Fields of :func:`psutil.cpu_times` in which nobody of this machine worked, or that others count already."""


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds that were used by now.

    Attributes:
        processes: By the name of the process.
        machine: By all processes of the machine.
        steal: Withheld by the machine's host.
        bench: By this process.
    """

    processes: Mapping[str, float]
    machine: float
    steal: float
    bench: float

    def since(self, earlier: CpuReading) -> CpuReading:
        """What was used between an earlier reading and this one."""
        processes = {name: max(0.0, used - earlier.processes.get(name, 0.0)) for name, used in self.processes.items()}
        return CpuReading(
            processes, self.machine - earlier.machine, self.steal - earlier.steal, self.bench - earlier.bench
        )


class CpuMeter:
    """Reads the CPU time of ``tiercel up``, its agent and its inference server.

    Args:
        product: It is up.
    """

    def __init__(self, product: Product) -> None:
        agent_dir = product.state_dir / "agent"
        pids = {
            "broker": product.pid,
            "agent": _pid_in(agent_dir / "agent.lock"),
            "serving": _pid_in(agent_dir / "serving.lock"),
        }
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items() if pid is not None}

    def read(self) -> CpuReading:
        """What was used by now; a process that has ended is left out."""
        used = {}
        for name, process in self._processes.items():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            used[name] = times.user + times.system
        machine = psutil.cpu_times()._asdict()
        busy = sum(seconds for name, seconds in machine.items() if name not in _IDLE)
        return CpuReading(used, busy, machine.get("steal", 0.0), time.process_time())


def _pid_in(lock: Path) -> int | None:
    try:
        return int(lock.read_text(encoding="utf-8").strip())
    except (FileNotFoundError, ValueError):
        return None
