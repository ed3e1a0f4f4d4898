"""Additive increase, multiplicative decrease on what was seen, without profiles.

That is Clipper's way of sizing batches (NSDI 2017), carried over to the choice of the variant. An honest rival: it
needs to know nothing.
"""

from __future__ import annotations

from tiercel.serving.scheduling.interface import BATCHES, Choice, Ended, View

_DECREASE = 0.75
_CALM = 16


class AimdScheduler:
    """Grows the batch by one row while answers are in time and shrinks it by a quarter when one is not.

    A late answer also moves on to the next less accurate variant; so many answers in time in a row move back. Each step
    back that fails doubles how many it takes, up to 64 times.
    """

    def __init__(self) -> None:
        self._limits: dict[str, float] = {}
        self._level = 0
        self._in_time = 0
        self._needed = _CALM
        self._objective = 0.0
        self._variants = 1

    def decide(self, view: View) -> Choice | None:
        """See :meth:`Scheduler.decide`."""
        self._objective, self._variants = view.objective, len(view.variants)
        self._level = min(self._level, self._variants - 1)
        kind = view.quickest_idle(self._level)
        profile = view.kinds[kind].profiles[self._level]
        limit = min(self._limits.get(profile.name, 1.0), float(profile.max_batch))
        return Choice(self._level, max(batch for batch in BATCHES if batch <= limit), kind)

    def ended(self, run: Ended) -> None:
        """See :meth:`Scheduler.ended`."""
        limit = self._limits.get(run.variant, 1.0)
        if run.delay > self._objective:
            self._limits[run.variant] = max(1.0, limit * _DECREASE)
            if self._in_time < self._needed:
                self._needed = min(2 * self._needed, 64 * _CALM)
            self._level = min(self._level + 1, self._variants - 1)
            self._in_time = 0
            return
        self._limits[run.variant] = min(limit + 1.0, float(BATCHES[-1]))
        self._in_time += 1
        if self._in_time >= self._needed and self._level > 0:
            self._level -= 1
            self._in_time = 0
            self._needed = max(_CALM, self._needed // 2)
