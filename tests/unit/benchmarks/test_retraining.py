"""The benchmark of training again: the broker's own steps decide in it, and worlds are the same for all."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.retraining import CORES, DAY, TRAINING, Broker, at_once, in_time, on_schedule, served, world_of


def test_a_world_that_turns_is_followed_and_one_that_does_not_costs_nothing() -> None:
    turning = world_of("sudden", 1)
    assert all(np.array_equal(a.x, b.x) for a, b in zip(turning, world_of("sudden", 1), strict=True))
    never, ours = sum(on_schedule(turning, ())), Broker(turning)
    assert sum(ours.run()) > 1.1 * never
    assert sum(on_schedule(turning, [DAY * day for day in range(1, 10)])) > 1.1 * never
    right, begun = at_once(turning)
    assert sum(right) > 1.1 * never
    assert begun[0] == ours.begun[0], "the same alarm"
    assert all(sum(at <= other < at + DAY for other in begun) <= 3 for at in begun)
    still = Broker(world_of("still", 1))
    assert served(still.run(), still.begun, TRAINING, 1) > 0.9
    assert still.begun == []


def test_what_is_right_and_late_counts_only_in_part() -> None:
    assert in_time(CORES) > in_time(1) > in_time(0.6) > in_time(0.4) == 0.0
    assert served([15] * 10, [300.0], 900.0, 0.4) == pytest.approx(0.7 * in_time(CORES))
