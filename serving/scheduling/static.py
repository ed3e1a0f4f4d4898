"""Always the same variant, with the largest batch that ends within the objective.

That is what a server without a scheduler does, and the baseline of Fang et al.
"""

from __future__ import annotations

from tiercel.serving.scheduling.interface import Choice, Ended, View


class StaticScheduler:
    """One variant for everything.

    Args:
        variant: Its name; the most accurate one if it is not among the candidates, or if none is given.
    """

    def __init__(self, variant: str | None = None) -> None:
        self._variant = variant

    def decide(self, view: View) -> Choice | None:
        """See :meth:`Scheduler.decide`."""
        names = [profile.name for profile in view.variants]
        index = names.index(self._variant) if self._variant in names else 0
        kind = view.quickest_idle(index)
        return Choice(index, view.kinds[kind].profiles[index].largest_within(view.objective), kind)

    def ended(self, run: Ended) -> None:
        """Changes nothing."""
