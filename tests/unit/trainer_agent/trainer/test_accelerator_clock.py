from __future__ import annotations

import logging

import pytest

from testing.fake_cuda import FakeCuda
from tiercel.trainer_agent.trainer.accelerator_clock import ClockReading, CudaClock


def step(cuda: FakeCuda, clock: CudaClock, seconds: float) -> None:
    """A script's step: issuing it takes a millisecond."""
    clock.begin()
    cuda.now += 0.001
    cuda.issue(seconds)
    clock.end()


def test_a_span_is_pending_until_the_accelerator_has_done_it() -> None:
    cuda = FakeCuda()
    clock = CudaClock(0, cuda=cuda)
    step(cuda, clock, 0.1)
    step(cuda, clock, 0.2)
    assert clock.read() == ClockReading(0.0, 0, 2)
    cuda.now = 0.15
    reading = clock.read()
    assert (reading.spans, reading.pending) == (1, 1)
    assert reading.busy_seconds == pytest.approx(0.101)
    cuda.now = 1.0
    assert clock.read().busy_seconds == pytest.approx(0.301)


def test_an_accelerator_that_the_process_does_not_use_is_left_alone() -> None:
    cuda = FakeCuda()
    cuda.held_bytes = 0
    clock = CudaClock(0, cuda=cuda)
    step(cuda, clock, 0.1)
    assert clock.read() == ClockReading()
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


def test_a_span_that_ends_on_an_idle_stream_is_known_once_its_beginning_is_and_takes_no_time_back() -> None:
    cuda = FakeCuda()
    clock = CudaClock(0, cuda=cuda)
    cuda.issue(1.0)
    clock.begin()
    cuda.on_idle_stream = True
    clock.end()
    assert clock.read() == ClockReading(0.0, 0, 1)
    cuda.now = cuda.free_at
    assert clock.read() == ClockReading(0.0, 1, 0)


@pytest.mark.parametrize("in_a_span", [False, True])
def test_an_accelerator_that_fails_is_measured_no_more_and_the_clock_itself_does_not_fail(
    caplog: pytest.LogCaptureFixture, *, in_a_span: bool
) -> None:
    cuda = FakeCuda()
    clock = CudaClock(0, cuda=cuda)
    step(cuda, clock, 0.1)
    cuda.now = cuda.free_at
    before = clock.read()
    step(cuda, clock, 0.1)
    if in_a_span:
        clock.begin()
    cuda.has_failed = True
    with caplog.at_level(logging.WARNING):
        clock.end()
        step(cuda, clock, 0.1)
        assert clock.read() == before
    assert caplog.text.count("device-side assert triggered") == 1
