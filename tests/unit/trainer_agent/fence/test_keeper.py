from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tiercel.trainer_agent.fence.keeper import Scripts, keep
from tiercel.trainer_agent.runtimes.processes.identity import identity_of

AGENT = 4711


@dataclass
class Time:
    now: float = 1000.0
    moments: dict[float, Callable[[], object]] = field(default_factory=dict)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for moment in [each for each in self.moments if each <= self.now]:
            self.moments.pop(moment)()


@dataclass
class Stubborn:
    """Lives until it was killed so often."""

    time: Time
    lives: float = 1
    heard: list[tuple[float, signal.Signals]] = field(default_factory=list)

    def send(self, number: signal.Signals) -> bool:
        alive = self.lives > 0
        if alive:
            self.heard.append((round(self.time.now, 1), number))
        self.lives -= number is signal.SIGKILL
        return alive


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    (tmp_path / "agent.lock").write_text(f"{AGENT} node-1\n")
    promise = {"stop_after_seconds": 90.0, "end_after_seconds": 110.0, "contact_at": 970.0}
    (tmp_path / "fence.json").write_text(json.dumps(promise))
    return tmp_path


def test_what_a_dead_agent_left_is_asked_to_end_and_then_killed_until_it_is_gone(state_dir: Path) -> None:
    time = Time()
    runs = Stubborn(time), Stubborn(time, lives=3)
    keep(state_dir, AGENT, runs, clock=time, sleep=time.sleep)
    assert runs[0].heard == [(1060.0, signal.SIGTERM), (1080.0, signal.SIGKILL)]
    kills = [1080.0, 1081.0, 1082.0]
    assert runs[1].heard == [(1060.0, signal.SIGTERM), *((at, signal.SIGKILL) for at in kills)]


def test_what_the_next_life_of_the_agent_looks_after_is_left_alone(state_dir: Path) -> None:
    time = Time(moments={1050.0: lambda: (state_dir / "agent.lock").write_text("4712 node-1\n")})
    runs = Stubborn(time)
    keep(state_dir, AGENT, [runs], clock=time, sleep=time.sleep)
    assert (round(time.now), runs.heard) == (1050, [])


@pytest.mark.parametrize("missing", ["agent.lock", "fence.json"])
def test_without_a_promise_or_an_agent_nothing_is_ended(state_dir: Path, missing: str) -> None:
    (state_dir / missing).unlink()
    time = Time()
    runs = Stubborn(time)
    keep(state_dir, AGENT, [runs], clock=time, sleep=time.sleep)
    assert (time.now, runs.heard) == (1000.0, [])


def test_what_cannot_be_ended_is_given_up_at_last(state_dir: Path) -> None:
    time = Time()
    runs = Stubborn(time, lives=1e9)
    keep(state_dir, AGENT, [runs], clock=time, sleep=time.sleep)
    assert time.now == pytest.approx(1080.0 + 3600.0, abs=2.0)


def test_a_script_whose_minder_was_killed_too_is_ended_and_is_not_waited_for_as_a_zombie(tmp_path: Path) -> None:
    script = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        known = identity_of(script.pid)
        assert known is not None
        (tmp_path / "job-1").mkdir()
        gone, lives = [known.boot_id, os.getpid(), known.start_ticks], [known.boot_id, known.pid, known.start_ticks]
        (tmp_path / "job-1" / "processes").write_text(json.dumps([gone, lives]))
        scripts = Scripts(tmp_path)
        assert scripts.send(signal.SIGKILL)
        os.waitid(os.P_PID, script.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has buried it
        assert not scripts.send(signal.SIGKILL)
    finally:
        script.kill()
        assert script.wait() == -signal.SIGKILL
