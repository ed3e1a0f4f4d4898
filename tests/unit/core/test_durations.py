"""Times as people write them."""

from __future__ import annotations

import pytest

from tiercel.core.durations import in_words, seconds_in


@pytest.mark.parametrize(
    ("text", "seconds", "words"),
    [
        ("2h", 7200, "2h"),
        ("90m", 5400, "1h30m"),
        ("1d", 86400, "1d"),
        ("1h30m", 5400, "1h30m"),
        (" 1.5 h ", 5400, "1h30m"),
        ("45", 45, "45s"),
        ("0.5s", 0.5, "0.5s"),
    ],
)
def test_a_time(text: str, seconds: float, words: str) -> None:
    assert seconds_in(text) == seconds
    assert in_words(seconds) == words


@pytest.mark.parametrize("text", ["", "h", "-1h", "2 hours", "1h30", "nan", "1e9", "1h" * 9, "9" * 500])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90m, 2h, 1d"):
        seconds_in(text)
