"""A point of time, as the pure machines are told it."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """A point of time on both clocks of the broker."""

    at: float  # Seconds since the Unix epoch: for what people read and for what is stored. Somebody may set it.
    alive: float  # seconds that the broker has been alive: for how long somebody has been silent, and for nothing else

    @classmethod
    def of_one_clock(cls, now: float) -> Moment:
        """A point of time where nobody sets a clock and nobody pauses, as in a simulation."""
        return cls(now, now)
