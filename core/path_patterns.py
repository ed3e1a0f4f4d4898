"""Patterns of paths, such as ``reports/*.html``: which files of a folder somebody means.

A pattern is relative to the folder and has ``/`` between its parts. In a part ``*`` stands for any characters, ``?``
for one and ``[ab]`` for one of some; a part that is ``**`` stands for any number of folders, none included. Who names a
folder means all that is in it. Letters count as they are written, and names that begin with a dot are like any others.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Final

from tiercel.core.errors import InvalidSpecError

MAX_PATTERNS: Final = 32
MAX_PATTERN_CHARACTERS: Final = 256
MAX_PATH_CHARACTERS: Final = 512
MAX_PATH_PARTS: Final = 32
_ANY_FOLDERS: Final = "**"


class PathPatterns:
    """Some patterns; a path matches if it matches one of them.

    Args:
        patterns: Each free of problems, see :func:`pattern_problem`.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compiled(pattern) for pattern in patterns]

    def matches(self, path: str) -> bool:
        """Whether a file's path is meant."""
        parts = path.split("/")
        return any(_is_met(pattern, parts) for pattern in self._patterns)

    def may_match_below(self, folder: str) -> bool:
        """Whether a path in this folder may be meant."""
        parts = folder.split("/")
        return any(_states(pattern, parts) for pattern in self._patterns)


def validate_outputs(patterns: Sequence[str]) -> None:
    """Check which files a job wants to have kept.

    Raises:
        InvalidSpecError: They are too many, or one of them cannot be met.
    """
    if len(patterns) > MAX_PATTERNS:
        message = f"outputs: has {len(patterns)} patterns; at most {MAX_PATTERNS} are taken"
        raise InvalidSpecError(message, field="outputs")
    for index, pattern in enumerate(patterns):
        if problem := pattern_problem(pattern):
            field = f"outputs[{index}]"
            raise InvalidSpecError(f"{field}: {pattern[:64]!r} {problem}", field=field)


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern, as the end of a sentence; empty if nothing is."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return f"is longer than {MAX_PATTERN_CHARACTERS} characters"
    return path_problem(pattern.removesuffix("/"))


def path_problem(path: str) -> str:
    """What is wrong with a path that has to lie in a folder, as the end of a sentence; empty if nothing is."""
    parts = path.split("/")
    if len(path) > MAX_PATH_CHARACTERS:
        return f"is longer than {MAX_PATH_CHARACTERS} characters"
    if len(parts) > MAX_PATH_PARTS:
        return f"has more than {MAX_PATH_PARTS} parts"
    if not path.isprintable():  # neither a line's end, nor bytes that are no text
        return "has characters that cannot be printed"
    if not all(parts):
        return "is empty, begins with '/' or has two in a row; give a path relative to the folder"
    if {".", ".."} & set(parts):
        return "has a part '.' or '..'; give a path below the folder"
    return ""


def _compiled(pattern: str) -> list[re.Pattern[str] | None]:
    """Its parts; None for any number of folders."""
    parts = pattern.removesuffix("/").split("/")
    return [None if part == _ANY_FOLDERS else re.compile(fnmatch.translate(part)) for part in parts]


def _is_met(pattern: list[re.Pattern[str] | None], parts: list[str]) -> bool:
    return len(pattern) in _states(pattern, parts)


def _states(pattern: list[re.Pattern[str] | None], parts: list[str]) -> set[int]:
    """How many parts of the pattern may be met once these parts of a path were seen."""
    states = _skipped(pattern, {0})
    for part in parts:
        met = {len(pattern)} & states  # a folder that is named: all in it is meant
        for state in states - met:
            wanted = pattern[state]
            if wanted is None:
                met.add(state)
            elif wanted.match(part):
                met.add(state + 1)
        states = _skipped(pattern, met)
    return states


def _skipped(pattern: list[re.Pattern[str] | None], states: set[int]) -> set[int]:
    """These, and where ``**`` stands for no folder."""
    found = set(states)
    for state in states:
        place = state
        while place < len(pattern) and pattern[place] is None:
            place += 1
            found.add(place)
    return found
