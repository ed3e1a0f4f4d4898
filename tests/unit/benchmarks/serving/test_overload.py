from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.serving.open_loop import Tally, arrivals, summary
from benchmarks.serving.overload import bars_of


def test_arrivals_come_at_the_rate_and_the_same_seed_gives_the_same_times() -> None:
    times = arrivals(1000.0, 10.0, seed=3)
    assert times == arrivals(1000.0, 10.0, seed=3)
    assert len(times) == 10_000
    assert abs(times[-1] - 10.0) < 0.5
    assert np.all(np.diff(times) > 0)


def test_only_answers_within_the_deadline_are_goodput() -> None:
    tally = Tally(good=[0.01, 0.02, 0.3], refused=[0.001], unsent=1)
    found = summary(tally, planned=5, seconds=2.0, deadline=0.1)
    assert (found["goodput"], found["answered"], found["in_time"], found["unsent"]) == (1.0, 3, 2, 1)
    assert found["refused_ms"]["max"] == 1.0


def row(**fields: Any) -> dict[str, Any]:
    return {
        "load": 10.0,
        "goodput_over_peak": 0.95,
        "answered_in_time": 0.99,
        "refusal_p99_ms": 5.0,
        "refusal_max_ms": 20.0,
        "other_errors": 0,
        "broken": 0,
        **fields,
    }


def test_every_load_above_the_peak_counts_and_the_others_do_not() -> None:
    calm = row(load=0.5, goodput_over_peak=0.5)
    assert all(bar.holds for bar in bars_of({"overload": [calm, row()]}))
    missed = [
        bar.name
        for bar in bars_of({"overload": [calm, row(), row(goodput_over_peak=0.8, refusal_max_ms=51.0)]})
        if not bar.holds
    ]
    assert missed == ["goodput over peak, least of all loads above it", "longest refusal"]
