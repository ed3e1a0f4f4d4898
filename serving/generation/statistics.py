"""What was generated of a model, through all its versions; used on the event loop only."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.serving.accounting.delays import Delays


@dataclass(slots=True)
class GenerationStatistics:
    """Counts of one model."""

    first_token: Delays  # from a request's arrival to its first token
    tokens: int = 0  # tokens of answers
    prompt_tokens: int = 0  # tokens of prompts that were read

    def begun(self, prompt_tokens: int, seconds: float, now: float) -> None:
        """The first token of an answer came."""
        self.prompt_tokens += prompt_tokens
        self.first_token.answered(seconds, now)
