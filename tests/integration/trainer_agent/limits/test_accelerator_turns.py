"""The whole loop over a simulated accelerator: pacers at step boundaries, the agent's paces, turns of 2 ms."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.limits.accelerator_paces import AcceleratorPaces
from tiercel.trainer_agent.trainer.accelerator_clock import StepClock
from tiercel.trainer_agent.trainer.accelerator_pacing import AcceleratorPacer

TURN_SECONDS = 0.002


class Script:
    """A script that waits for each of its steps, and for its data in between."""

    def __init__(
        self,
        fraction: float,
        step_seconds: float,
        idle_seconds: float,
        rng: random.Random,
        now: Callable[[], float],
        tell: Callable[[float], None],
    ) -> None:
        self.fraction, self.got_seconds = fraction, 0.0
        self._step_seconds, self._idle_seconds, self._rng = step_seconds, idle_seconds, rng
        self._tell, self._told_at = tell, 0.0
        self._left_seconds, self._resting_until, self._fetched = 0.0, 0.0, True
        self.clock = StepClock(now)
        self.pacer = AcceleratorPacer([self.clock], wall=now)

    def wants_turn(self, now: float) -> bool:
        """Go on as far as possible without the accelerator; whether it is needed then."""
        if self._left_seconds > 0:
            return True
        if now < self._resting_until:
            return False
        if not self._fetched:
            self._fetched, self._resting_until = True, now + self._idle_seconds
            return self._idle_seconds == 0 and self.wants_turn(now)
        if now >= self._told_at + 1.0:
            self._told_at = now
            self._tell(self.clock.read().busy_seconds)
        if (delay := self.pacer.delay_seconds()) > 0:
            self._resting_until = now + delay
            return False
        self._left_seconds = self._step_seconds * self._rng.uniform(0.5, 1.5)
        self.pacer.begin()
        return True

    def take_turn(self) -> None:
        """The accelerator has worked for it."""
        self._left_seconds -= TURN_SECONDS
        self.got_seconds += TURN_SECONDS

    def end_turn(self) -> None:
        """Notice that a step is done."""
        if self._left_seconds <= 0 and self._fetched:
            self.pacer.end()
            self._fetched = False


class Machine:
    """An accelerator, and the agent that paces who uses it, once a second when it is told something."""

    def __init__(self) -> None:
        self.now = 0.0
        self.scripts: dict[str, Script] = {}
        self._paces = AcceleratorPaces()
        self._paced_at = 0.0
        self._queue: deque[str] = deque()

    def add(self, name: str, fraction: float, step_seconds: float, idle_seconds: float = 0.0) -> None:
        def tell(busy_seconds: float) -> None:
            self._paces.note(name, self.now, busy_seconds)
            if self.now >= self._paced_at + 0.9:
                self._repace()

        rng = random.Random(name)
        self.scripts[name] = Script(fraction, step_seconds, idle_seconds, rng, lambda: self.now, tell)
        self._queue.append(name)
        self._repace()

    def live(self, seconds: float) -> dict[str, float]:
        """Let time pass; returns which fraction of it the accelerator worked for each."""
        before = {name: script.got_seconds for name, script in self.scripts.items()}
        for _ in range(round(seconds / TURN_SECONDS)):
            self._turn()
        return {name: (script.got_seconds - before[name]) / seconds for name, script in self.scripts.items()}

    def _repace(self) -> None:
        self._paced_at = self.now
        shares = {name: [AcceleratorShare("GPU-a", script.fraction)] for name, script in self.scripts.items()}
        for name, pace in self._paces.paces(shares).items():
            self.scripts[name].pacer.limit(pace)

    def _turn(self) -> None:
        willing = {name for name, script in self.scripts.items() if script.wants_turn(self.now)}
        chosen = next((name for name in self._queue if name in willing), None)
        self.now += TURN_SECONDS
        if chosen is not None:
            self._queue.remove(chosen)
            self._queue.append(chosen)
            self.scripts[chosen].take_turn()
            self.scripts[chosen].end_turn()


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.7, 0.3), (0.9, 0.1), (0.5, 0.3, 0.2)])
@pytest.mark.parametrize("step_seconds", [0.01, 0.15])
def test_who_wants_all_gets_its_fraction_and_the_accelerator_is_never_idle(
    fractions: tuple[float, ...], step_seconds: float
) -> None:
    machine = Machine()
    for number, fraction in enumerate(fractions):
        machine.add(f"run{number}", fraction, step_seconds * (1 + number))
    machine.live(5)
    got = machine.live(30)
    assert list(got.values()) == pytest.approx(fractions, abs=0.03)
    assert sum(got.values()) > 0.99


def test_what_a_run_with_slow_data_leaves_unused_is_lent() -> None:
    machine = Machine()
    machine.add("slow data", 0.7, 0.01, idle_seconds=0.09)
    machine.add("hungry", 0.3, 0.02)
    machine.live(6)
    got = machine.live(30)
    assert got["slow data"] > 0.08  # a tenth is all it can use when it is alone
    assert sum(got.values()) > 0.99
