"""What every clock of accelerator time has to do: steps on the CPU, a made-up accelerator, a GPU if there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from testing.fake_cuda import FakeCuda
from tiercel.trainer_agent.trainer.accelerator_clock import AcceleratorClock, CudaClock, StepClock


class Bench(Protocol):
    """A clock and the accelerator it measures."""

    clock: AcceleratorClock

    def work(self, seconds: float) -> None:
        """Issue something that takes the accelerator about so long."""

    def finish(self) -> None:
        """Wait until the accelerator has done all."""


class StepBench:
    def __init__(self) -> None:
        self.now = 0.0
        self.clock = StepClock(lambda: self.now)

    def work(self, seconds: float) -> None:
        self.now += seconds

    def finish(self) -> None:
        """It always is."""


class FakeBench:
    def __init__(self) -> None:
        self.cuda = FakeCuda()
        self.clock = CudaClock(0, cuda=self.cuda)

    def work(self, seconds: float) -> None:
        self.cuda.issue(seconds)

    def finish(self) -> None:
        self.cuda.now = max(self.cuda.now, self.cuda.free_at)


class GpuBench:
    def __init__(self) -> None:
        import torch  # takes long, and most machines have no use for it here

        if not torch.cuda.is_available():
            pytest.skip("PyTorch uses no GPU")
        self.cuda = torch.cuda
        self.matrix = torch.rand(512, 512, device="cuda")
        self.clock = CudaClock(0)

    def work(self, seconds: float) -> None:
        self.cuda._sleep(int(seconds * 2e9))  # type: ignore[no-untyped-call]  # cycles, of up to 2 GHz

    def finish(self) -> None:
        self.cuda.synchronize()


@pytest.fixture(params=[StepBench, FakeBench, *([GpuBench] if Path("/dev/nvidiactl").exists() else [])])
def bench(request: pytest.FixtureRequest) -> Bench:
    made: Bench = request.param()
    return made


def test_at_first_nothing_was_used(bench: Bench) -> None:
    reading = bench.clock.read()
    assert (reading.busy_seconds, reading.spans, reading.pending) == (0.0, 0, 0)


def test_what_is_issued_in_spans_counts_and_nothing_else(bench: Bench) -> None:
    bench.work(0.2)
    bench.finish()
    for _ in range(2):
        bench.clock.begin()
        bench.work(0.01)
        bench.clock.end()
        bench.work(0.2)
        bench.finish()
    reading = bench.clock.read()
    assert (reading.spans, reading.pending) == (2, 0)
    assert 0.005 < reading.busy_seconds < 0.1


def test_to_begin_or_to_end_twice_changes_nothing(bench: Bench) -> None:
    bench.clock.end()
    bench.clock.begin()
    bench.work(0.01)
    bench.clock.begin()
    bench.clock.end()
    bench.clock.end()
    bench.finish()
    reading = bench.clock.read()
    assert reading.spans == 1
    assert reading.busy_seconds > 0.005


def test_every_span_is_known_once_the_accelerator_is_done_however_many_there_were(bench: Bench) -> None:
    last = bench.clock.read()
    for _ in range(200):
        bench.clock.begin()
        bench.work(0.001)
        bench.clock.end()
        reading = bench.clock.read()
        assert reading.busy_seconds >= last.busy_seconds
        assert reading.spans + reading.pending <= 200
        last = reading
    bench.finish()
    bench.clock.end()  # a span that stayed open for want of room
    bench.finish()
    reading = bench.clock.read()
    assert reading.pending == 0
    assert 0.1 < reading.busy_seconds < 1.0
