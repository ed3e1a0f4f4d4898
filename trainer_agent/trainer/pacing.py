"""A cooperative limit: how long to sleep so that a process uses so many cores on average. Pure but for its clocks.

For nodes where the agent may not set limits of the kernel: the library asks at every step boundary.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# How far use may run ahead of, or lag behind, the limit before it is balanced; seconds of wall time.
WINDOW_SECONDS = 1.0


class TokenBucket:
    """Fills at a rate, is emptied by what is used, and may be overdrawn: what is owed is then waited for.

    What is not used is forgotten after :data:`WINDOW_SECONDS`; what costs more than the bucket holds is waited for in
    full, however much it was. All that is used is charged as it was measured, so that errors do not add up.
    """

    def __init__(self) -> None:
        self._rate = self._credit = 0.0

    @property
    def rate(self) -> float:
        """What may be used in a second; 0 means that there is no limit."""
        return self._rate

    def limit(self, rate: float) -> None:
        """Set the rate; what is owed stays owed from one limit to the next. 0, or less, means none."""
        before, self._rate = self._rate, max(rate, 0.0)
        self._credit = min(self._credit, self._rate * WINDOW_SECONDS) if before and self._rate else 0.0

    def turn(self, passed_seconds: float, used: float) -> None:
        """Take in that time has passed and what was used meanwhile."""
        self._credit = min(self._credit + self._rate * passed_seconds - used, self._rate * WINDOW_SECONDS)

    def delay_seconds(self, expected: float = 0.0) -> float:
        """How long until what is owed is earned; 0 when nothing is, or without a limit.

        Args:
            expected: What was used already but is not measured yet, by estimate.
        """
        return max((expected - self._credit) / self._rate, 0.0) if self._rate else 0.0


class Pacer:
    """Holds the CPU time of a process to so many cores.

    Args:
        wall: Seconds that pass; any origin.
        cpu: CPU seconds that the process has used, over all threads. Child processes are not counted.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._wall, self._cpu = wall, cpu
        self._bucket = TokenBucket()
        self._last_wall, self._last_cpu = wall(), cpu()

    @property
    def cores(self) -> float:
        """The limit in cores; 0 means none."""
        return self._bucket.rate

    def limit(self, cores: float) -> None:
        """Set the limit, from this moment on; to set the same one again changes nothing. 0, or less, means none."""
        if cores == self.cores:
            return
        self._bucket.limit(cores)
        self._last_wall, self._last_cpu = self._wall(), self._cpu()

    def delay_seconds(self) -> float:
        """How long the process should do nothing now; 0 when it is within its limit."""
        wall, cpu = self._wall(), self._cpu()
        self._bucket.turn(wall - self._last_wall, cpu - self._last_cpu)
        self._last_wall, self._last_cpu = wall, cpu
        return self._bucket.delay_seconds()
