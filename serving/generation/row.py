"""One answer that is being generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tiercel.core.errors import TiercelError
from tiercel.serving.generation.sampling import Sampling, next_token
from tiercel.serving.tensors import Array

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle

    from tiercel.serving.generation.noting import Notes

STOPPED = "stop"
"""The model said that its answer ends, or an id came that the caller named."""
FULL = "length"
"""It has as many tokens as were wanted, or as the model can remember."""

_UNKNOWN: Final = np.empty(0, np.int64)


class Owner(Protocol):
    """Generates rows."""

    def cancel(self, row: Row) -> None:
        """Nobody wants it any more."""


class Listener(Protocol):
    """Hears of an answer, on the event loop; nothing after the end, and nothing once the row was cancelled."""

    def token(self, token: int) -> None:
        """One more."""

    def finished(self, reason: str) -> None:
        """That was all."""

    def failed(self, error: TiercelError) -> None:
        """There will be no more, and it is not complete."""


class Row:
    """See the module.

    Args:
        loop: Where it is generated.
        sampling: How they are chosen.
        random: What chance is drawn from.
        ends: Ids that end the answer.
        arrived: When the request came, seconds of ``time.perf_counter``.
        listener: Hears of it.

    Attributes:
        ended: Whether nothing more is to be generated.
        last: The token that came last.
        notes: What is noted of it, so that it can be explained; None for nothing.
        prompt: Ids, one or more; none until they are known.
        tokens: How many came.
        run_seconds: How long steps took that it was part of.
        timer: Ends it when its time is up.
        tokenizing: Gives the prompt's ids, where that takes a while.
    """

    __slots__ = (
        "_ends", "_loop", "_most", "_random", "_sampling", "arrived", "ended", "last", "listener", "notes", "prompt",
        "run_seconds", "timer", "tokenizing", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        loop: Owner,
        sampling: Sampling,
        random: np.random.Generator,
        ends: frozenset[int],
        arrived: float,
        listener: Listener,
    ) -> None:
        self._loop = loop
        self.prompt: Array = _UNKNOWN
        self._most = 0
        self._sampling = sampling
        self._random = random
        self._ends = ends
        self.arrived = arrived
        self.listener = listener
        self.ended = False
        self.last = 0
        self.notes: Notes | None = None
        self.tokens = 0
        self.run_seconds = 0.0
        self.timer: TimerHandle | None = None
        self.tokenizing: Future[Array] | None = None

    def ask(self, prompt: Array, most: int) -> None:
        """Give it its prompt, and say how many tokens the answer has at most."""
        self.prompt, self._most = prompt, most
        if self.notes is not None:
            self.notes.prompt_tokens = len(prompt)

    @property
    def reserved(self) -> int:
        """Tokens that its cache may come to have."""
        return len(self.prompt) + self._most - 1  # the last one is not read again

    def choose(self, logits: Array) -> int:
        """The next token; in the thread of the step. One draw a token, so that company changes nothing."""
        self.last = next_token(logits, self._sampling, self._random.random())
        return self.last

    def take(self, token: int, now: float, rows: int) -> str:
        """Count a token that came, of a step with so many rows; returns why the answer ends, or nothing."""
        if self.notes is not None:
            self.notes.take(now, rows)
        if token in self._ends:
            return STOPPED
        self.tokens += 1
        return FULL if self.tokens >= self._most else ""

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._loop.cancel(self)


Stepped = list[tuple[Row, int | TiercelError]]
"""Rows, each with its next token or why there is none."""
