"""How far off what-ifs are where only the work is unknown."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.scheduling.floor import floor, settled
from benchmarks.scheduling.recordings import Recording, Recordings
from tests.support.scheduling_runs import recording

TARGETS = recording().targets


def run(seed: int, step: float) -> Recording:
    """It starts for 3 s, then reports 12 times, so many seconds apart; its tiers come with the 5th and the 9th."""
    curve = tuple((3.0 + step * at, 0.3 + at * 0.1 if at < 4 else TARGETS[at >= 8]) for at in range(12))
    return dataclasses.replace(recording(training_seed=seed), curve=curve)


def recordings(*steps: float) -> Recordings:
    return Recordings({("cnn-small", seed): run(seed, step) for seed, step in enumerate(steps)})


def test_runs_that_need_what_earlier_ones_did_are_foretold() -> None:
    found = floor(recordings(0.5, 0.5, 0.5))["all"]
    assert found["predictions"] >= 6
    assert found["median_error"] < 0.05


def test_what_a_run_needs_more_than_earlier_ones_is_what_is_left() -> None:
    known = recordings(2.0, 1.0, 1.0)
    first, second = (each.drawn.seconds / each.came - 1 for _, each in [*settled(known.get("cnn-small", 0), known)][:2])
    # 7 s and 11 s were needed before its first report, by the runs before, of 11 s and 19 s.
    assert (first, second) == pytest.approx((7 / 11 - 1, 11 / 19 - 1), abs=0.03)
