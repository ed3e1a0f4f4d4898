from __future__ import annotations

import pytest

from tiercel.trainer_agent.trainer.pacing import Pacer


class Machine:
    """A wall clock and a CPU clock that move only when something is done."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.pacer = Pacer(wall=lambda: self.wall, cpu=lambda: self.cpu)

    def work(self, seconds: float, *, threads: float = 1.0) -> None:
        self.wall += seconds
        self.cpu += seconds * threads

    def rest(self) -> float:
        delay = self.pacer.delay_seconds()
        self.wall += delay
        return delay


def test_without_a_limit_nobody_rests() -> None:
    machine = Machine()
    for _ in range(10):
        machine.work(1.0, threads=2)
        assert machine.rest() == 0


@pytest.mark.parametrize("cores", [0.1, 0.3, 0.9, 1.5])
def test_the_average_follows_the_limit(cores: float) -> None:
    machine = Machine()
    machine.pacer.limit(cores)
    for _ in range(200):
        machine.work(0.05, threads=2)
        machine.rest()
    assert machine.cpu / machine.wall == pytest.approx(cores, rel=0.01)


def test_a_step_longer_than_the_window_is_slept_off_in_full() -> None:
    machine = Machine()
    machine.pacer.limit(0.5)
    machine.work(10.0)
    assert machine.rest() == pytest.approx(10.0)
    assert machine.rest() == pytest.approx(0.0)


def test_idle_time_is_not_saved_up_beyond_the_window() -> None:
    machine = Machine()
    machine.pacer.limit(0.5)
    machine.wall += 100.0
    machine.pacer.delay_seconds()
    machine.work(3.0)
    # 3 CPU seconds used; 0.5 saved up, 1.5 earned meanwhile.
    assert machine.rest() == pytest.approx(1.0 / 0.5)


def test_a_change_counts_from_its_moment_and_zero_lifts_the_limit() -> None:
    machine = Machine()
    machine.pacer.limit(0.1)
    machine.work(5.0)
    machine.pacer.limit(0.5)
    assert machine.rest() == 0
    machine.work(1.0)
    assert machine.rest() == pytest.approx(1.0)
    machine.work(1.0)
    machine.pacer.limit(0)
    assert machine.pacer.cores == 0
    assert machine.rest() == 0


def test_to_set_the_same_limit_again_forgives_nothing() -> None:
    machine = Machine()
    machine.pacer.limit(0.5)
    machine.work(1.0)
    machine.pacer.limit(0.5)
    assert machine.rest() == pytest.approx(1.0)
