"""What is wrong for a while, said once in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


class Complaint:
    """Says what is wrong with one thing when that begins or becomes something else, however often it is looked at.

    Args:
        log: Where it is said, as a warning.
        words: How; ``%s`` is what is wrong.
    """

    def __init__(self, log: logging.Logger, words: str = "%s") -> None:
        self._log = log
        self._words = words
        self._problem = ""

    def note(self, problem: str) -> None:
        """What is wrong now; empty where nothing is."""
        if problem and problem != self._problem:
            self._log.warning(self._words, problem)
        self._problem = problem
