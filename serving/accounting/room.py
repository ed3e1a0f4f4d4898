"""How much may wait or run at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.errors import CapacityExceededError


@dataclass(slots=True)
class Room:
    """How many calls and input bytes may wait or run."""

    max_calls: int  # calls at most
    max_bytes: int  # input bytes at most; one call is always let in
    calls: int = 0
    bytes: int = 0

    def take(self, size: int) -> None:
        """Let a call in.

        Raises:
            CapacityExceededError: There is no room.
        """
        self.check(size)
        self.calls += 1
        self.bytes += size

    def check(self, size: int = 0) -> None:
        """Raise if there is no room for a call of ``size`` bytes.

        Raises:
            CapacityExceededError: There is none.
        """
        if not self.has_room(size):
            raise CapacityExceededError(f"{self.calls} requests are waiting already; try again in a moment")

    def has_room(self, size: int = 0) -> bool:
        """Whether a call of ``size`` bytes would be let in."""
        return self.calls < self.max_calls and (not self.calls or self.bytes + size <= self.max_bytes)

    def give_back(self, size: int) -> None:
        """A call left."""
        self.calls -= 1
        self.bytes -= size
