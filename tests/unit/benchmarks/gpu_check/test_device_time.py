"""Timers of steps: on a device that does things at its own time, and on a clock that is moved by hand."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu_check.device_time import STEPS_IN_FLIGHT, EventTimer, WallTimer
from testing.fake_cuda import FakeCuda, FakeEvent

CUDA = torch.device("cuda:0")


class WaitableEvent(FakeEvent):
    """An event that can be waited for."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__(cuda)
        self._device = cuda

    def synchronize(self) -> None:
        """As ``torch.cuda.Event`` has it."""
        assert self.at is not None
        self._device.now = max(self._device.now, self.at)


class Cuda(FakeCuda):
    """A device whose events can be waited for."""

    def Event(self, *, enable_timing: bool) -> WaitableEvent:  # noqa: N802 - PyTorch's name
        assert enable_timing
        return WaitableEvent(self)


def test_steps_count_when_the_device_has_done_them_and_at_that_time() -> None:
    cuda = Cuda()
    timer = EventTimer(CUDA, cuda=cuda, clock=lambda: 1000.0 + cuda.now)
    for _ in range(3):
        timer.begin()
        cuda.issue(0.2)
        timer.end()
    assert timer.done().steps == 0
    cuda.now = 0.5
    done = timer.done()
    assert done.steps == 2
    assert done.busy_seconds == pytest.approx(0.4)
    assert done.at == pytest.approx(1000.4)


def test_rests_between_steps_pass_and_are_not_busy() -> None:
    cuda = Cuda()
    timer = EventTimer(CUDA, cuda=cuda, clock=lambda: cuda.now)
    for _ in range(4):
        timer.begin()
        cuda.issue(0.1)
        timer.end()
        cuda.now += 0.4
    done = timer.done()
    assert done.steps == 4
    assert done.busy_seconds == pytest.approx(0.4)
    assert done.at == pytest.approx(1.3)


def test_a_script_that_is_far_ahead_waits_for_the_device() -> None:
    cuda = Cuda()
    timer = EventTimer(CUDA, cuda=cuda, clock=lambda: cuda.now)
    for _ in range(3 * STEPS_IN_FLIGHT):
        timer.begin()
        cuda.issue(0.1)
        timer.end()
        timer.done()
    assert cuda.free_at - cuda.now == pytest.approx(STEPS_IN_FLIGHT * 0.1)


def test_on_a_cpu_a_step_is_done_when_it_was_issued() -> None:
    now = [50.0]
    timer = WallTimer(clock=lambda: now[0])
    for _ in range(2):
        timer.begin()
        now[0] += 0.3
        timer.end()
        now[0] += 1.0
    done = timer.done()
    assert done.steps == 2
    assert done.busy_seconds == pytest.approx(0.6)
    assert done.at == pytest.approx(51.6)
