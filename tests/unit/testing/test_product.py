from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testing.product import kill_all, processes_of
from tiercel.trainer_agent.limits.entering import entering

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(
    started: list[subprocess.Popen[bytes]], *arguments: str, command: str = sys.executable, **environment: str
) -> int:
    process = subprocess.Popen([command, *arguments], env=environment, stdout=subprocess.PIPE)
    started.append(process)
    # Once it has said something, its command line is its own.
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


def test_processes_are_found_by_arguments_and_environment(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    mine = {
        start(started, "-c", SLEEP, "--state-dir", str(tmp_path)),
        start(started, "-c", SLEEP, str(tmp_path / "agent" / "models")),
        start(started, "-c", SLEEP, TIERCEL_RUN_DIR=str(tmp_path / "agent/jobs/j1")),
    }
    start(started, "-c", SLEEP, f"{tmp_path}-other/state")
    start(started, "-c", SLEEP, str(tmp_path.parent))
    assert {process.pid for process in processes_of(tmp_path)} == mine


def test_a_process_that_is_still_entering_its_control_group_is_found(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    group = tmp_path.parent / f"{tmp_path.name}-group"
    os.mkfifo(group)  # the shell waits here for a reader, as it may wait for the kernel
    command = entering([group], [sys.executable, "-c", SLEEP, str(tmp_path)])
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    started.append(process)
    assert [each.pid for each in processes_of(tmp_path)] == [process.pid]


def test_programs_that_merely_look_at_a_file_are_left_alone(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    log = tmp_path / "up.log"
    log.write_text("a line\n")
    start(started, "-n", "1", "-f", str(log), command="/usr/bin/tail")
    assert processes_of(tmp_path) == []


def test_what_is_killed_is_gone(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    pid = start(started, "-c", SLEEP, str(tmp_path))
    kill_all(processes_of(tmp_path))
    assert not psutil.pid_exists(pid)


def test_killing_what_has_ended_already_is_fine(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    pid = start(started, "-c", SLEEP, str(tmp_path))
    found = [psutil.Process(pid)]
    started[0].kill()
    started[0].wait(timeout=10)
    kill_all(found)
    assert processes_of(tmp_path) == []
