from __future__ import annotations

import numpy as np
import pytest

from benchmarks.serving.swaps import Seen, Swap, bars_of, figures_of, gaps_ms, in_windows, measure, quiet_windows

EVERY_MILLISECOND = np.arange(0.0, 10.0, 0.001)


def without(begin: float, end: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """An answer every millisecond but between ``begin`` and ``end`` seconds."""
    times = EVERY_MILLISECOND
    return times[(times < begin) | (times >= end)]


def test_the_longest_gap_is_found_also_where_it_begins_before_or_ends_after_a_window() -> None:
    ended = without(2.0, 2.02)
    windows = [(1.0, 1.5), (2.005, 2.5), (1.5, 2.01), (2.005, 2.015)]
    assert gaps_ms(ended, windows) == pytest.approx([1.0, 21.0, 21.0, 21.0], abs=0.01)


def test_a_window_after_the_last_answer_is_a_gap_as_a_whole() -> None:
    assert gaps_ms(np.array([]), [(1.0, 2.0)]) == pytest.approx([1000.0])


def test_quiet_windows_lie_between_swaps_and_are_as_long_as_one() -> None:
    swaps = [Swap(0.0, 0.1, 0), Swap(0.15, 0.25, 0), Swap(1.25, 1.35, 0)]
    windows = quiet_windows(swaps)
    assert len(windows) == 7
    assert all(end - begin == pytest.approx(0.1) for begin, end in windows)
    assert windows[0][0] == pytest.approx(0.45)
    assert windows[-1][1] <= 1.2


def test_answers_are_told_apart_by_when_they_came() -> None:
    assert in_windows(np.array([0.5, 1.0, 1.5, 2.0]), [(0.9, 1.6)]).tolist() == [False, True, True, False]


def test_figures_and_bars_say_what_was_missed() -> None:
    swaps = [Swap(begin, begin + 0.1, 1000 if begin < 4 else 1100) for begin in np.arange(0.5, 9.0, 0.5)]
    ended = without(8.52, 8.55)
    took = np.where((ended > 8.5) & (ended < 8.6), 0.01, 0.001).astype(np.float32)
    figures = figures_of(swaps, Seen(ended, took, ["HTTP/1.1 500"]))
    missed = [bar.name for bar in bars_of({"small": figures}) if not bar.holds]
    assert missed == [
        "swaps, small model",
        "failed requests, small model",
        "longest gap in a swap, small model",
        "p99 in swaps by p99 without, small model",
    ]
    assert figures["longest_gap_in_swaps"]["max_ms"] == pytest.approx(31.0, abs=0.01)


def test_three_swaps_of_a_real_server_under_load_fail_no_request() -> None:
    figures = measure("small", swaps=3, connections=1, seconds=60.0, quiet_seconds=0.3)
    assert (figures["swaps"], figures["failed"], figures["failures"]) == (3, 0, [])
    assert figures["answers"] > 0
