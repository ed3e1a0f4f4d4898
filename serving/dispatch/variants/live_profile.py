"""How long a variant runs here and now: begun with what loading measured, moved by every run."""

from __future__ import annotations

from tiercel.serving.runtime.engine import Session
from tiercel.serving.scheduling.interface import BATCHES, Profile

_WEIGHT = 0.2
# What else slows the machine down slows other sizes too, of which no run was seen lately.
_WEIGHT_OF_OTHERS = 0.05
# One run that was held up for long says little.
_MOST = 5.0
_UNKNOWN_SECONDS = 1e-3


class LiveProfile:
    """Exponentially weighted means of a variant's durations, by batch size."""

    def __init__(self, name: str, accuracy: float, session: Session) -> None:
        self._name = name
        self._accuracy = accuracy
        measured = session.batching.profile
        if measured is None:
            self._seconds = [_UNKNOWN_SECONDS]
        else:
            self._seconds = [max(measured.estimate(batch), 1e-6) for batch in BATCHES]
        self.current = self._rising()

    def ran(self, rows: int, seconds: float) -> None:
        """A run of so many rows took so long, from its hand-over to a worker until it was back."""
        seen = min((rows - 1).bit_length(), len(self._seconds) - 1)
        ratio = min(max(seconds / self._expected(rows, seen), 1.0 / _MOST), _MOST) - 1.0
        for index, each in enumerate(self._seconds):
            self._seconds[index] = each * (1.0 + ratio * (_WEIGHT if index == seen else _WEIGHT_OF_OTHERS))

    def _expected(self, rows: int, index: int) -> float:
        """By the means as they are now, which move with every run; :attr:`current` may be older."""
        after = self._seconds[index]
        if index == 0 or rows >= BATCHES[index]:
            return after * rows / BATCHES[index]
        before = self._seconds[index - 1]
        return before + (after - before) * (rows - BATCHES[index - 1]) / (BATCHES[index] - BATCHES[index - 1])

    def renew(self) -> Profile:
        """The profile as of now."""
        self.current = self._rising()
        return self.current

    def _rising(self) -> Profile:
        rising: list[float] = []
        for each in self._seconds:
            rising.append(max(each, rising[-1]) if rising else each)
        return Profile(self._name, self._accuracy, tuple(rising))
