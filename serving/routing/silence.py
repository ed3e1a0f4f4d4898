"""When a node counts as silent: nothing came back from there for longer than answers take. Pure."""

from __future__ import annotations

from typing import Final

LEAST_PATIENCE_SECONDS: Final = 0.4
"""How long nothing may come back of a model that answers fast, or of which nothing is known."""
MOST_MODELS: Final = 4096
"""Models of which it is remembered how slow they are; of more, those that were first asked for last."""
_TIMES: Final = 3.0
_FADE: Final = 0.02
_MOST_CARRIED_SECONDS: Final = 60.0


class Hearing:
    """For how long nothing has come back from a node while somebody waited for it.

    What a request waited that its caller gave up counts for the next one: callers that are less patient than we are
    would else never find out that nobody is there.

    Attributes:
        is_silent: Whether the node is passed over.
    """

    __slots__ = ("_carried", "_since", "_waiting", "is_silent")

    def __init__(self) -> None:
        self._waiting = 0
        self._since = 0.0
        self._carried = 0.0
        self.is_silent = False

    def sent(self, now: float) -> None:
        """A request is on its way there."""
        if not self._waiting:
            self._since = now - self._carried
        self._waiting += 1

    def heard(self, now: float) -> None:
        """Something came back, whatever it was."""
        self._since = now
        self._carried = 0.0
        self.is_silent = False

    def ended(self, now: float) -> None:
        """A request is over, answered or not."""
        self._waiting -= 1
        if not self._waiting:
            self._carried = min(now - self._since, _MOST_CARRIED_SECONDS)

    def quiet_seconds(self, now: float) -> float:
        """For how long nothing came back that was waited for."""
        return now - self._since if self._waiting else self._carried


class Patience:
    """For how long answers of each model are waited for before somebody else is asked.

    A model's slowest answer is what counts: it is known at once, and fades with each faster one. One that was waited
    for in vain may have been as slow, so that a model that is truly slow is asked for twice a few times at most.
    """

    def __init__(self) -> None:
        self._slowest: dict[str, float] = {}

    def seconds(self, model: str) -> float:
        """How long nothing may come back."""
        return max(LEAST_PATIENCE_SECONDS, _TIMES * self._slowest.get(model, 0.0))

    def answered(self, model: str, seconds: float) -> None:
        """An answer came after so many seconds."""
        before = self._slowest.get(model, 0.0)
        self._note(model, max(seconds, before + _FADE * (seconds - before)))

    def waited(self, model: str, seconds: float) -> None:
        """None came for so many seconds."""
        self._note(model, max(seconds, self._slowest.get(model, 0.0)))

    def _note(self, model: str, seconds: float) -> None:
        if model not in self._slowest and len(self._slowest) >= MOST_MODELS:
            del self._slowest[next(iter(self._slowest))]
        self._slowest[model] = seconds
