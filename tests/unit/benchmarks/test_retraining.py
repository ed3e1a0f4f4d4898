"""The benchmark of training again: the broker's own steps decide in it, and worlds are the same for all."""

from __future__ import annotations

import numpy as np

from benchmarks.retraining import DAY, Broker, on_schedule, world_of


def test_a_world_that_turns_is_followed_and_one_that_does_not_costs_nothing() -> None:
    turning = world_of("sudden", 1)
    assert all(np.array_equal(a.x, b.x) for a, b in zip(turning, world_of("sudden", 1), strict=True))
    ours = Broker(turning)
    assert ours.run() > on_schedule(turning, ()) + 0.1
    assert on_schedule(turning, [DAY * day for day in range(1, 10)]) > on_schedule(turning, ()) + 0.1
    still = Broker(world_of("still", 1))
    assert still.run() > 0.9
    assert still.begun == []
