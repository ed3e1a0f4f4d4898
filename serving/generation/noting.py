"""What is noted of one answer on its way, so that it can be explained by its id."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.serving.explaining.recent_requests import RecentRequests, RememberedGeneration

_ERROR_CHARACTERS = 200


@dataclass(slots=True)
class Notes:
    """Of one answer; times are seconds of ``time.perf_counter``."""

    recent: RecentRequests  # where it is remembered in the end
    model: str  # that is asked
    version: str  # that answers
    id: str  # of the request
    arrived: float  # when its first byte was read
    checked: float  # when it was read and checked
    prompt_tokens: int = 0  # of the prompt
    began: float = 0.0  # when its first step was given to a thread
    first: float = 0.0  # when its first token came
    rows: int = 0  # answers that a step of it had at most

    def take(self, now: float, rows: int) -> None:
        """A token came, of a step with so many answers."""
        self.first = self.first or now
        self.rows = max(self.rows, rows)

    def end(self, tokens: int, now: float, error: str) -> None:
        """It has so many tokens, and gets no more; ``error``: why it is not complete."""
        remembered = RememberedGeneration(
            self.version,
            self.arrived,
            self.checked,
            self.began,
            self.first,
            now,
            self.prompt_tokens,
            tokens,
            self.rows,
            error[:_ERROR_CHARACTERS],
        )
        self.recent.keep(self.model, self.id, remembered, now)
