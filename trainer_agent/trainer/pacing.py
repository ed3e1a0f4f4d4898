"""A cooperative limit: how long to sleep so that a process uses so many cores on average. Pure but for its clocks.

For nodes where the agent may not set limits of the kernel: the library asks at every step boundary.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# How far use may run ahead of, or lag behind, the limit before it is balanced; seconds of wall time.
WINDOW_SECONDS = 1.0


class Pacer:
    """A token bucket: it fills with ``cores`` a second and is emptied by the CPU time that the process uses.

    What is not used is forgotten after :data:`WINDOW_SECONDS`; a step that costs more than the bucket holds is slept
    off in full, however long it was.

    Args:
        wall: Seconds that pass; any origin.
        cpu: CPU seconds that the process has used, over all threads. Child processes are not counted.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._wall, self._cpu = wall, cpu
        self._cores = 0.0
        self._credit = 0.0
        self._last_wall, self._last_cpu = wall(), cpu()

    @property
    def cores(self) -> float:
        """The limit in cores; 0 means none."""
        return self._cores

    def limit(self, cores: float) -> None:
        """Set the limit, from this moment on. 0, or less, means none."""
        self._cores = max(cores, 0.0)
        self._credit = 0.0
        self._last_wall, self._last_cpu = self._wall(), self._cpu()

    def delay_seconds(self) -> float:
        """How long the process should do nothing now; 0 when it is within its limit."""
        wall, cpu = self._wall(), self._cpu()
        self._credit += self._cores * (wall - self._last_wall) - (cpu - self._last_cpu)
        self._credit = min(self._credit, self._cores * WINDOW_SECONDS)
        self._last_wall, self._last_cpu = wall, cpu
        return max(-self._credit / self._cores, 0.0) if self._cores else 0.0
