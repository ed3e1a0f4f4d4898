from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from tiercel.trainer_agent.fence.fence import Fence
from tiercel.v1 import nodes_pb2

WORD = nodes_pb2.Fence(stop_after_seconds=90, end_after_seconds=110)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_without_a_fence_the_agent_outlives_its_broker_for_however_long_it_takes() -> None:
    clock = Clock()
    fence = Fence(clock=clock)
    fence.note_sent(0)
    fence.note_answered(0, None)
    clock.now += 1e6
    assert (fence.is_kept, fence.has_fallen, fence.seconds_left) == (False, False, math.inf)


def test_time_counts_from_when_the_last_answered_message_was_sent() -> None:
    clock = Clock()
    fence = Fence(clock=clock)
    fence.note_sent(0)
    clock.now += 3
    fence.note_answered(0, WORD)
    fence.note_sent(1)
    clock.now += 5
    fence.note_sent(2)
    fence.note_answered(1, WORD)
    clock.now += 84.9
    fallen = [fence.has_fallen]
    clock.now += 0.1
    assert [*fallen, fence.has_fallen] == [False, True]
    assert fence.seconds_left == 20
    clock.now += 50  # as after a sleep of the machine
    assert fence.seconds_left == 0
    fence.note_answered(2, WORD)  # an old answer
    fallen = [fence.has_fallen]
    fence.note_sent(0)
    fence.note_answered(0, WORD)
    assert [*fallen, fence.has_fallen] == [True, False]


def test_a_broker_may_take_its_fence_back() -> None:
    clock = Clock()
    fence = Fence(clock=clock)
    for number, word in enumerate((WORD, None)):
        fence.note_sent(number)
        fence.note_answered(number, word)
    clock.now += 1e6
    assert not fence.has_fallen


def test_a_fence_outlives_the_agent(tmp_path: Path) -> None:
    clock = Clock()
    fence = Fence(tmp_path / "fence.json", clock)
    fence.note_sent(0)
    fence.note_answered(0, WORD)
    clock.now += 60
    again = Fence(tmp_path / "fence.json", clock)
    assert (again.is_kept, again.seconds_left) == (True, 50)
    after_boot = Fence(tmp_path / "fence.json", Clock(5.0))
    assert not after_boot.is_kept
    again.note_sent(0)
    again.note_answered(0, None)
    assert not list(tmp_path.iterdir())
    (tmp_path / "fence.json").write_text("[]")
    assert not Fence(tmp_path / "fence.json", clock).is_kept


def test_a_full_disk_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    fence = Fence(tmp_path / "not-there" / "fence.json", clock)
    for number in range(3):
        fence.note_sent(number)
        fence.note_answered(number, WORD)
        clock.now += 60
    assert len(caplog.records) == 1
