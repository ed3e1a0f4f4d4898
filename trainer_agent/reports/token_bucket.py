"""How much may pass in how much time. Pure: the time is an argument."""

from __future__ import annotations


class TokenBucket:
    """Lets ``per_second`` pass on average, and ``burst`` at once after a rest."""

    def __init__(self, per_second: float, burst: float, now: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._at = now

    def take(self, amount: float, now: float) -> None:
        """Let something pass. What is more than there is has to be made good before anything else passes."""
        self._refill(now)
        self._left -= amount

    def seconds_until_room(self, now: float) -> float:
        """How long until something may pass again; 0 for now."""
        self._refill(now)
        return max(0.0, -self._left / self._per_second)

    def _refill(self, now: float) -> None:
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
