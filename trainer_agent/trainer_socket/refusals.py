"""What was refused of a script, said in its job's log: once a reason, and at the end how often. Pure."""

from __future__ import annotations

from collections.abc import Callable


class Refusals:
    """Counts what was refused, by the reason."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._counts: dict[str, int] = {}

    def note(self, reason: str, count: int = 1) -> None:
        """Something was refused; ``reason`` has no full stop, and is one of a few."""
        if reason not in self._counts:
            self._write_line(f"{reason}.")
        self._counts[reason] = self._counts.get(reason, 0) + count

    def sum_up(self) -> None:
        """Say how often, of what was refused more than once. Doing it again says only what came after."""
        counts, self._counts = self._counts, {}
        for reason, count in counts.items():
            if count > 1:
                self._write_line(f"{count} times in this run: {reason}.")
