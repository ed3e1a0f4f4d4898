from __future__ import annotations

import pytest

from tests.support.fake_cuda import FakeCuda
from tiercel.trainer_agent.trainer.device_clock import CudaClock, Reading


def step(cuda: FakeCuda, clock: CudaClock, seconds: float) -> None:
    """A script's step: issuing it takes a millisecond."""
    clock.begin()
    cuda.now += 0.001
    cuda.issue(seconds)
    clock.end()


def test_a_span_is_pending_until_the_device_has_done_it() -> None:
    cuda = FakeCuda()
    clock = CudaClock(0, cuda=cuda)
    step(cuda, clock, 0.1)
    step(cuda, clock, 0.2)
    assert clock.read() == Reading(0.0, 0, 2)
    cuda.now = 0.15
    reading = clock.read()
    assert (reading.spans, reading.pending) == (1, 1)
    assert reading.busy_seconds == pytest.approx(0.101)
    cuda.now = 1.0
    assert clock.read().busy_seconds == pytest.approx(0.301)


def test_a_device_that_the_process_does_not_use_is_left_alone() -> None:
    cuda = FakeCuda()
    cuda.held_bytes = 0
    clock = CudaClock(0, cuda=cuda)
    step(cuda, clock, 0.1)
    assert clock.read() == Reading()
    assert cuda.made == 0


def test_a_script_far_ahead_is_measured_in_longer_spans_and_nothing_is_lost() -> None:
    cuda = FakeCuda()
    clock = CudaClock(0, cuda=cuda, spans_in_flight=4)
    for _ in range(100):
        step(cuda, clock, 0.1)
    assert clock.read().pending == 4
    cuda.now = cuda.free_at
    step(cuda, clock, 0.1)
    cuda.now = cuda.free_at
    reading = clock.read()
    assert (reading.spans, reading.pending) == (5, 0)
    assert reading.busy_seconds == pytest.approx(10.1, abs=0.01)


def test_events_are_used_again() -> None:
    cuda = FakeCuda()
    clock = CudaClock(0, cuda=cuda, spans_in_flight=4)
    for _ in range(1000):
        step(cuda, clock, 0.01)
        cuda.now = cuda.free_at
    assert clock.read().spans == 1000
    assert cuda.made <= 8
