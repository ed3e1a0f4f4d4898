from __future__ import annotations

import pytest

from testing import onnx_models
from tiercel.serving.dispatch.variants.live_profile import LiveProfile
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.scheduling.interface import BATCHES


def profile(batches: bool = True) -> LiveProfile:
    session = Session(onnx_models.plus(1.0))
    if batches:
        session.batching = Batching(LatencyProfile((1, 2, 4), (0.001, 0.002, 0.004)), "", 4)
    return LiveProfile("v", 0.9, session)


def test_it_begins_with_what_loading_measured() -> None:
    assert profile().current.seconds == pytest.approx([0.001 * batch for batch in BATCHES])


def test_a_variant_that_takes_no_batches_has_one_duration() -> None:
    assert profile(batches=False).current.max_batch == 1


def test_it_comes_to_what_runs_take_also_when_nobody_looks_for_long() -> None:
    moving = profile()
    for _ in range(2_000):
        moving.ran(3, 0.009)
        moving.ran(4, 0.012)
    assert moving.current.seconds[2] == pytest.approx(0.004)
    assert moving.renew().seconds[2] == pytest.approx(0.012, rel=0.2)
    assert list(moving.current.seconds) == sorted(moving.current.seconds)


def test_one_run_that_was_held_up_for_long_says_little() -> None:
    moving = profile()
    moving.ran(1, 10.0)
    assert moving.renew().seconds[0] < 0.002
