"""Remembers what became of requests that carry an id of their own, as far as memory that is bounded goes back.

A request without an id leaves nothing. Of each model the last ones are kept in two halves: when the newer half is full,
the older one goes, which costs nothing for each request. There is room for as many as :data:`FULL_MODELS` have; beyond
it, those go that were asked longest ago. Used on the event loop only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

FULL_MODELS: Final = 16
"""There is room for all that so many models may have."""
# Of so many models, those that were asked with ids last.
MOST_MODELS: Final = 1024
# Longer ids are not kept.
MOST_ID_CHARACTERS: Final = 128
_ERROR_CHARACTERS: Final = 200


Answered = tuple[int | float | bool | str, ...]
"""An answer, short: how many classes there are, 0 for no classes, then the class, label or value of each row."""


class RunTimes(NamedTuple):
    """A run, for all requests that it answered."""

    began: float  # when, seconds of ``time.perf_counter``
    batch_seconds: float  # in which inputs were joined and outputs taken apart
    run_seconds: float  # in which the model ran
    requests: int  # how many ran together
    rows: int  # that ran together


class Remembered(NamedTuple):
    """What became of a request. Times are seconds of ``time.perf_counter``."""

    version: str  # that answered, or was to
    variant: str  # of an endpoint with variants; else empty
    arrived: float  # when its first byte was read
    begin: float  # when it was read and checked
    run: RunTimes | None  # what ran it; None where it was not run
    place: int  # which of the requests that ran together it was, from 1
    rows: int  # its own
    encode: float  # when its answer began to be written
    end: float  # when its answer was with the connection, or it was given up
    error: str  # why it was not answered; empty for an answer
    answer: Answered | None  # what it said; None where that is not kept, and empty once feedback on it came

    def steps(self) -> dict[str, float]:
        """Seconds of each step, in their order; they add up to all that it took."""
        run = self.run
        if run is None:
            return {"parse": self.begin - self.arrived, "queue": self.end - self.begin}
        return {
            "parse": self.begin - self.arrived,
            "queue": run.began - self.begin,
            "batch": run.batch_seconds,
            "run": run.run_seconds,
            "return": self.encode - (run.began + run.batch_seconds + run.run_seconds),
            "encode": self.end - self.encode,
        }

    def as_json(self) -> dict[str, Any]:
        """For the interface; see docs/serving.md."""
        run = self.run
        batch = run and {"requests": run.requests, "place": self.place, "rows": run.rows, "own_rows": self.rows}
        return {
            "version": self.version,
            "variant": self.variant,
            "arrived_at": time.time() - (time.perf_counter() - self.arrived),
            "seconds": self.end - self.arrived,
            "steps": self.steps(),
            "batch": batch,
            "error": self.error,
        }


class RememberedGeneration(NamedTuple):
    """What became of an answer that was generated. Times are seconds of ``time.perf_counter``; 0 for never."""

    version: str  # that answered, or was to
    arrived: float  # when the request's first byte was read
    begin: float  # when it was read and checked
    began: float  # when its first step was given to a thread
    first: float  # when its first token came
    end: float  # when it was complete, or given up
    prompt_tokens: int  # of the prompt
    tokens: int  # that came
    rows: int  # answers that a step of it had at most, itself among them
    error: str  # why it is not complete; empty where it is
    answer: None = None  # there is no feedback on it

    def steps(self) -> dict[str, float]:
        """Seconds of each step, in their order; they add up to all that it took."""
        steps = {"parse": self.begin - self.arrived, "queue": (self.began or self.end) - self.begin}
        if self.began:
            steps["first"] = (self.first or self.end) - self.began
        if self.first:
            steps["rest"] = self.end - self.first
        return steps

    def as_json(self) -> dict[str, Any]:
        """For the interface; see docs/generation.md."""
        following = self.tokens - 1
        return {
            "version": self.version,
            "variant": "",
            "arrived_at": time.time() - (time.perf_counter() - self.arrived),
            "seconds": self.end - self.arrived,
            "steps": self.steps(),
            "batch": None,
            "generation": {
                "prompt_tokens": self.prompt_tokens,
                "tokens": self.tokens,
                "first_token_seconds": self.first - self.arrived if self.first else None,
                "seconds_per_token": (self.end - self.first) / following if following > 0 else None,
                "rows": self.rows,
            },
            "error": self.error,
        }


# As it is kept: a tuple of its fields, of which the garbage collector looks at none again.
_Fields = tuple[str, str, float, float, RunTimes | None, int, int, float, float, str, Answered | None]
_Kept = _Fields | RememberedGeneration


@dataclass(slots=True)
class _OfModel:
    newer: dict[str, _Kept] = field(default_factory=dict)
    older: dict[str, _Kept] = field(default_factory=dict)
    asked: float = 0.0


class RecentRequests:
    """See the module.

    Args:
        most: The last requests of each model that are remembered while there is room; up to twice as many are. 0 for
            none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = 2 * most * FULL_MODELS  # for how many there is room
        self._models: dict[str, _OfModel] = {}

    def wants(self, request_id: str) -> bool:
        """Whether a request with this id is remembered."""
        return 0 < len(request_id) <= MOST_ID_CHARACTERS and self._most > 0

    def keep(self, model: str, request_id: str, request: _Kept, now: float) -> None:
        """Remember a request; of several with one id the last."""
        of_model = self._models.get(model)
        if of_model is None:
            if len(self._models) >= MOST_MODELS:
                self._forget_longest_ago()
            of_model = self._models[model] = _OfModel()
        newer = of_model.newer
        if len(newer) >= self._most:
            self._left += len(of_model.older)
            newer, of_model.older = {}, newer
            of_model.newer = newer
        of_model.asked = now
        if request_id not in newer:
            self._left -= 1
            if self._left < 0:
                self._forget_longest_ago()
        newer[request_id] = request

    def _forget_longest_ago(self) -> None:
        gone = self._models.pop(min(self._models, key=lambda each: self._models[each].asked))
        self._left += len(gone.newer) + len(gone.older)

    def find(self, model: str, request_id: str) -> Remembered | RememberedGeneration | None:
        """What became of a request; None where nobody knows, or knows any more."""
        of_model = self._models.get(model)
        if of_model is None:
            return None
        fields = of_model.newer.get(request_id) or of_model.older.get(request_id)
        if fields is None or isinstance(fields, RememberedGeneration):
            return fields
        return Remembered._make(fields)

    def forget(self, model: str) -> None:
        """Drop what became of all requests of a model."""
        gone = self._models.pop(model, None)
        self._left += len(gone.newer) + len(gone.older) if gone is not None else 0

    def forget_answer(self, model: str, request_id: str) -> None:
        """Feedback on a request that is known came."""
        of_model = self._models[model]
        half = of_model.newer if request_id in of_model.newer else of_model.older
        fields = half[request_id]
        if not isinstance(fields, RememberedGeneration):
            half[request_id] = (*fields[:-1], ())


class Trace:
    """What is noted of one request on its way.

    Args:
        recent: Where it is remembered in the end.
        request_id: Its id.

    Attributes:
        request_id: Its id.
        run: What ran it; None while nothing did.
        place: Which of the requests that ran together it was, from 1.
    """

    __slots__ = ("_recent", "place", "request_id", "run")

    def __init__(self, recent: RecentRequests, request_id: str) -> None:
        self._recent = recent
        self.request_id = request_id
        self.run: RunTimes | None = None
        self.place = 0

    def end(
        self,
        model: str,
        version: str,
        variant: str,
        arrived: float,
        begin: float,
        rows: int,
        encode: float,
        end: float,
        error: str = "",
        answer: Answered | None = None,
    ) -> None:
        """It asked ``model``, and was answered or not; see :class:`Remembered`."""
        why = error[:_ERROR_CHARACTERS]
        fields = (version, variant, arrived, begin, self.run, self.place, rows, encode, end, why, answer)
        self._recent.keep(model, self.request_id, fields, end)
