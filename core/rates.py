"""How often something may happen: a rate with a burst, kept in one moment (the generic cell rate algorithm)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tiercel.core.errors import InvalidSpecError

_RATE = re.compile(r"(?P<count>\d{1,7}(?:\.\d{1,3})?)\s*/\s*(?P<unit>s|m|h)")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
MAX_PER_SECOND = 1_000_000.0
# Of one that is let through; moments in the millions of seconds are no finer than this at a high rate.
_ROUNDING = 1e-3


@dataclass(slots=True)
class RateLimit:
    """Lets through so many a second, and a burst of what a while without any would have let through."""

    per_second: float  # how many a second, over time; more than 0
    burst: float  # how many at once, at least 1
    _next: float = 0.0
    """When the next would be due if they came evenly; in the past while fewer come than may."""

    def try_take(self, now: float) -> bool:
        """Count one that happens now, unless that is too many; ``now`` in seconds, monotonic."""
        due = self._next
        if due < now:
            due = now
        elif (due - now) * self.per_second > self.burst - 1.0 + _ROUNDING:
            return False
        self._next = due + 1.0 / self.per_second
        return True

    def seconds_until_next(self, now: float) -> float:
        """For how long none is let through any more; 0 if one is let through now."""
        return max(0.0, self._next - now - (self.burst - 1.0) / self.per_second)

    def change(self, per_second: float, burst: float) -> None:
        """Go on with another rate; what was counted stays counted."""
        self.per_second, self.burst = per_second, burst


def retry_after_seconds(seconds: float) -> int:
    """Whole seconds as ``Retry-After`` says them: at least 1, so that nobody asks again at once."""
    return max(1, math.ceil(seconds))


def parse_rate(text: str) -> float:
    """Read ``100/s``, ``30/m`` or ``5000/h``; per second.

    Raises:
        InvalidSpecError: It is none, or out of bounds.
    """
    found = _RATE.fullmatch(text.strip())
    per_second = 0.0 if found is None else float(found["count"]) / _UNIT_SECONDS[found["unit"]]
    if not 0 < per_second <= MAX_PER_SECOND:
        raise InvalidSpecError(
            f"rate: {text[:40]!r} is no rate; write how many, and in what time, such as 100/s, 30/m or 5000/h "
            f"(up to {MAX_PER_SECOND:.0f}/s)",
            field="rate",
        )
    return per_second
