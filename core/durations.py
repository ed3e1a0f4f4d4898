"""Times as people write them: ``90m``, ``2h``, ``1d``, ``1h30m``, or a number of seconds."""

from __future__ import annotations

import re

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([smhd])")
_TIME = re.compile(rf"\s*(?:{_PART.pattern}\s*){{1,4}}")
_NUMBER = re.compile(r"\s*\d{1,12}(?:\.\d{1,9})?\s*")


def seconds_in(text: str) -> float:
    """Seconds of a time that somebody has written.

    Raises:
        ValueError: It is no time; says what one looks like.
    """
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _TIME.fullmatch(text):
        msg = f"{text!r} is not a time; write one such as 90m, 2h, 1d or 1h30m, or a number of seconds"
        raise ValueError(msg)
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def in_words(seconds: float) -> str:
    """A time as people would write it: ``5400`` is ``1h30m``."""
    if seconds < 1 or seconds != int(seconds):
        return f"{seconds:g}s"
    words, left = "", int(seconds)
    for unit, size in _SECONDS.items():
        count, left = divmod(left, int(size))
        words += f"{count}{unit}" if count else ""
    return words
