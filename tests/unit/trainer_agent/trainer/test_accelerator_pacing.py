from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from testing.fake_cuda import FakeCuda
from tiercel.trainer_agent.trainer.accelerator_clock import CudaClock, StepClock
from tiercel.trainer_agent.trainer.accelerator_pacing import STEPS_AHEAD, AcceleratorPacer

ISSUE_SECONDS = 0.001
KERNELS = 20


class CpuScript:
    """Steps on the CPU: to issue them is to do them."""

    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.pacer = AcceleratorPacer([StepClock(lambda: self.now)], wall=lambda: self.now)

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds

    def rest(self, seconds: float) -> None:
        self.now += seconds


class GpuScript:
    """Steps on an accelerator that does them while the script is ahead already."""

    def __init__(self) -> None:
        self.cuda = FakeCuda()
        self.used = 0.0
        self.pacer = AcceleratorPacer([CudaClock(0, cuda=self.cuda)], wall=lambda: self.cuda.now)

    @property
    def now(self) -> float:
        return self.cuda.now

    def work(self, seconds: float) -> None:
        for _ in range(KERNELS):  # the accelerator begins with the first one
            self.cuda.now += ISSUE_SECONDS / KERNELS
            self.cuda.issue(seconds / KERNELS)
        self.used += seconds

    def rest(self, seconds: float) -> None:
        self.cuda.now += seconds


Script = CpuScript | GpuScript


@pytest.fixture(params=[CpuScript, GpuScript])
def script(request: pytest.FixtureRequest) -> Script:
    made: Script = request.param()
    return made


def step(script: Script, seconds: float) -> None:
    while (delay := script.pacer.delay_seconds()) > 0:
        script.rest(delay)
    script.pacer.begin()
    script.work(seconds)
    script.pacer.end()


def train(script: Script, seconds: float, steps: Iterator[float]) -> float:
    """Train for so long; returns which fraction of the time the accelerator was used."""
    began, used = script.now, script.used
    while script.now < began + seconds:
        step(script, next(steps))
    return (script.used - used) / (script.now - began)


@pytest.mark.parametrize("fraction", [0.05, 0.25, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("seconds", [0.002, 0.02, 0.3])
def test_the_run_gets_its_fraction(script: Script, fraction: float, seconds: float) -> None:
    script.pacer.limit(fraction)
    assert train(script, 60.0, itertools.repeat(seconds)) == pytest.approx(fraction, abs=0.03)


def test_steps_of_all_lengths_get_it_too(script: Script) -> None:
    script.pacer.limit(0.3)
    assert train(script, 120.0, itertools.cycle([0.001, 0.5, 0.02, 0.02, 2.0, 0.1])) == pytest.approx(0.3, abs=0.03)


def test_a_change_is_followed_within_five_seconds(script: Script) -> None:
    for fraction in (0.3, 0.8, 0.1, 0.5):
        script.pacer.limit(fraction)
        train(script, 5.0, itertools.repeat(0.02))
        assert train(script, 10.0, itertools.repeat(0.02)) == pytest.approx(fraction, abs=0.03)


def test_steps_that_become_ten_times_as_long_are_followed_within_five_seconds(script: Script) -> None:
    script.pacer.limit(0.3)
    for seconds in (0.01, 0.1, 0.01):
        train(script, 5.0, itertools.repeat(seconds))
        assert train(script, 10.0, itertools.repeat(seconds)) == pytest.approx(0.3, abs=0.03)


def test_to_say_the_same_limit_or_a_like_one_again_and_again_lets_off_no_debt(script: Script) -> None:
    limits = itertools.cycle([0.3, 0.301, 0.299])
    began, used = script.now, script.used
    for _ in range(40):
        script.pacer.limit(next(limits))
        step(script, 1.5)
    assert (script.used - used) / (script.now - began) == pytest.approx(0.3, abs=0.03)


def test_without_a_limit_nobody_rests(script: Script) -> None:
    for fraction in (0.3, 0.0):
        script.pacer.limit(fraction)
        step(script, 5.0)
    for _ in range(10):
        assert script.pacer.delay_seconds() == 0.0
        step(script, 1.0)


def test_what_happens_between_spans_does_not_count(script: Script) -> None:
    script.pacer.limit(0.5)
    for _ in range(100):
        step(script, 0.01)
        script.rest(0.03)  # to fetch the next batch
    assert script.pacer.delay_seconds() == 0.0


def test_a_paced_script_is_never_far_ahead_of_the_accelerator() -> None:
    script = GpuScript()
    script.pacer.limit(0.9)
    train(script, 10.0, itertools.repeat(0.001))
    for _ in range(100):  # a hundred times as long as was expected
        step(script, 0.1)
        assert script.cuda.free_at - script.now <= (STEPS_AHEAD + 1) * 0.1 + 0.01


def test_the_busiest_accelerator_counts() -> None:
    now = 0.0
    busy, idle = StepClock(lambda: now), StepClock(lambda: now)
    pacer = AcceleratorPacer([idle, busy], wall=lambda: now)
    pacer.limit(0.5)
    busy.begin()
    now += 2.0
    busy.end()
    assert pacer.reading().busy_seconds == pytest.approx(2.0)
    assert pacer.delay_seconds() == pytest.approx(2.0)


def test_nothing_to_measure_is_nothing_to_pace() -> None:
    pacer = AcceleratorPacer([])
    pacer.limit(0.1)
    pacer.begin()
    pacer.end()
    assert (pacer.delay_seconds(), pacer.reading().busy_seconds) == (0.0, 0.0)
