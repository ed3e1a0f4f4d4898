from __future__ import annotations

import logging
import sys

import pytest
import torch

from tiercel.trainer_agent.trainer.accelerator_clock import StepClock
from tiercel.trainer_agent.trainer.accelerator_memory import CONTEXT_BYTES, MemoryLimits
from tiercel.trainer_agent.trainer.accelerators import USE_SECONDS, Accelerators
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.v1 import common_pb2

GIB = 1 << 30


class FakeMemory:
    """Devices of 80 GiB."""

    is_used = True

    def __init__(self, held: tuple[int, ...] = (0,)) -> None:
        self.held = held
        self.limits: dict[int, float] = {}

    @property
    def count(self) -> int:
        return len(self.held)

    def total_bytes(self, index: int) -> int:
        assert index < self.count
        return 80 * GIB

    def held_bytes(self, index: int) -> int:
        return self.held[index]

    def limit(self, index: int, fraction: float) -> None:
        self.limits[index] = fraction


def share(memory_bytes: int) -> common_pb2.AcceleratorShare:
    return common_pb2.AcceleratorShare(id="GPU-1", fraction=0.5, memory_bytes=memory_bytes)


class Script:
    def __init__(self, *shares: common_pb2.AcceleratorShare, memory: FakeMemory | None = None) -> None:
        self.now = 100.0
        clocks = [StepClock(lambda: self.now)]
        self.accelerators = Accelerators(shares, memory=memory or FakeMemory(), clocks=clocks, wall=lambda: self.now)

    def used(self) -> float:
        use = self.accelerators.use(last=True)
        assert use is not None
        return use.accelerator_seconds


def test_a_part_of_the_memory_is_a_limit_and_all_of_it_is_none() -> None:
    memory = FakeMemory((0, 0, 0, 0))
    MemoryLimits([20 * GIB + CONTEXT_BYTES, 80 * GIB, 0, 79 * GIB], memory)
    assert memory.limits == {0: 0.25}


def test_a_rank_limits_and_so_opens_its_own_accelerator_alone() -> None:
    memory = FakeMemory((0, 0))
    shares = [share(20 * GIB + CONTEXT_BYTES)] * 2
    Accelerators(shares, memory=memory, clocks=[StepClock()], own=Rank(1, 2, 1).devices(2))
    assert memory.limits == {1: 0.25}


def test_the_context_comes_out_of_what_was_granted() -> None:
    memory = FakeMemory()
    MemoryLimits([2 * CONTEXT_BYTES], memory)
    assert memory.limits == {0: CONTEXT_BYTES / (80 * GIB)}
    MemoryLimits([CONTEXT_BYTES], memory)
    assert memory.limits == {0: CONTEXT_BYTES / 2 / (80 * GIB)}, "something is left for tensors"


def test_running_out_of_it_is_explained_by_the_limit() -> None:
    limits = MemoryLimits([20 * GIB], FakeMemory())
    sentence = limits.explain(torch.OutOfMemoryError("CUDA out of memory."))
    assert "20,480 MiB of accelerator 0" in sentence
    assert "more accelerator memory" in sentence


@pytest.mark.parametrize("error", [None, ValueError("something else")])
def test_other_errors_are_not(error: BaseException | None) -> None:
    assert MemoryLimits([20 * GIB], FakeMemory()).explain(error) == ""


def test_nor_is_running_out_of_memory_without_a_limit() -> None:
    assert MemoryLimits([0], FakeMemory()).explain(torch.OutOfMemoryError()) == ""


def test_an_allocator_without_limits_is_said_and_ends_no_script(caplog: pytest.LogCaptureFixture) -> None:
    class Unlimited(FakeMemory):
        def limit(self, index: int, fraction: float) -> None:
            raise RuntimeError("this allocator does not support setMemoryFraction")

    with caplog.at_level(logging.WARNING):
        limits = MemoryLimits([20 * GIB], Unlimited())
    assert "setMemoryFraction" in caplog.text
    assert limits.explain(torch.OutOfMemoryError()) == "", "there is no limit to explain"


def test_an_accelerator_that_pytorch_does_not_see_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        MemoryLimits([20 * GIB], FakeMemory(()))
    assert "granted 1 accelerators, but PyTorch sees 0" in caplog.text


def test_what_pytorch_sees_does_not_matter_to_a_script_without_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    with caplog.at_level(logging.WARNING):
        accelerators = Accelerators.of([share(20 * GIB)], Rank())
    assert not caplog.text
    assert accelerators.held_bytes() == 0


def test_use_is_said_at_most_once_a_second_and_at_last() -> None:
    script = Script(share(0), share(0), memory=FakeMemory((1, 7 * GIB)))
    first = script.accelerators.use()
    assert first is not None
    assert first.memory_bytes == 7 * GIB
    script.now += 0.9 * USE_SECONDS
    assert script.accelerators.use() is None
    assert script.accelerators.use(last=True) is not None
    script.now += USE_SECONDS
    assert script.accelerators.use() is not None


def test_a_run_without_accelerators_says_nothing() -> None:
    assert Script().accelerators.use(last=True) is None


def test_what_counts() -> None:
    script = Script(share(0))
    with script.accelerators.counting():
        script.now += 1.0
        with script.accelerators.not_counting():
            script.now += 10.0
            with script.accelerators.counting():
                script.now += 2.0
            script.now += 20.0
        script.now += 4.0
    script.now += 40.0
    assert script.used() == pytest.approx(7.0)


def test_a_wait_outside_of_any_span_opens_none() -> None:
    script = Script(share(0))
    with script.accelerators.not_counting():
        script.now += 1.0
    script.now += 10.0
    with script.accelerators.counting():
        script.now += 2.0
    assert script.used() == pytest.approx(2.0)


def test_the_limit_holds_and_can_be_lifted() -> None:
    script = Script(share(0))
    script.accelerators.limit(0.25)
    with script.accelerators.counting():
        script.now += 1.0
    assert script.accelerators.delay_seconds() == pytest.approx(3.0)
    script.accelerators.limit(0.0)
    assert script.accelerators.delay_seconds() == 0.0
