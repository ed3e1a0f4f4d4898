"""The last inputs of an actor's machine, for who has to find out how it came into a state."""

from __future__ import annotations

import dataclasses
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from enum import Enum

    from tiercel.broker.lifecycle.job_events import JobInput

INPUTS_KEPT: Final = 20
MAX_CHARACTERS: Final = 200
_MAX_OF_A_FIELD: Final = 60


class InputHistory:
    """The last inputs that changed something, in words; bounded, and gone with the broker's life."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=INPUTS_KEPT)

    def add(self, at: float, message: JobInput | str, before: Enum, after: Enum) -> None:
        """Remember an input.

        Args:
            at: When it came, seconds since the Unix epoch.
            message: The input, or what happened instead of one.
            before: The machine's state until then.
            after: Its state since.
        """
        words = message if isinstance(message, str) else _words(message)
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        self._lines.append(f"{when} {before.value} -> {after.value}: {words[:MAX_CHARACTERS]}")

    def lines(self) -> tuple[str, ...]:
        """All that are remembered, the oldest first."""
        return tuple(self._lines)


def _words(message: JobInput) -> str:
    """The input with those of its fields that are short."""
    values = [(field.name, getattr(message, field.name)) for field in dataclasses.fields(message)]
    plain = [(name, value) for name, value in values if isinstance(value, str | int | float) and value != ""]
    return f"{type(message).__name__}({', '.join(f'{name}={str(value)[:_MAX_OF_A_FIELD]}' for name, value in plain)})"
