from __future__ import annotations

import pytest

from tiercel.core.backoff import Attempts, Backoff


def test_pauses_double_up_to_the_limit_and_jitter_takes_up_to_half() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=5)
    assert [backoff.seconds(failures) for failures in (0, 1, 2, 3, 4, 2000)] == [1, 1, 2, 4, 5, 5]
    assert backoff.seconds(1, jitter=0.5) == 0.75
    assert backoff.seconds(2000, jitter=1.0) == 2.5


def test_attempts_count_failures_in_a_row_and_begin_anew() -> None:
    longest = Attempts(Backoff(0.1, 3.0), chance=lambda: 0.0)
    assert [longest.next_seconds() for _ in range(7)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0])
    longest.reset()
    assert longest.next_seconds() == pytest.approx(0.1)
    shortest = Attempts(Backoff(0.1, 3.0), chance=lambda: 1.0)
    assert shortest.next_seconds() == pytest.approx(0.05)
