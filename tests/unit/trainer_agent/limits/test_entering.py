from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tiercel.trainer_agent.limits.entering import entering

TELL = "import os, sys; print(os.getpid(), open('/proc/self/oom_score_adj').read().strip(), sys.argv[1:])"


def test_a_command_enters_with_the_pid_that_it_keeps(tmp_path: Path) -> None:
    files = (tmp_path / "one cgroup.procs", tmp_path / "two")
    command = entering(files, [sys.executable, "-c", TELL, "a b", "$1"], ended_first=900)
    pid, score, arguments = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(" ", 2)
    assert [file.read_text() for file in files] == [f"{pid}\n"] * 2
    assert (score, arguments) == ("900", "['a b', '$1']\n")


def test_what_cannot_enter_does_not_start(tmp_path: Path) -> None:
    done = subprocess.run(entering([tmp_path / "gone" / "procs"], ["echo", "started"]), capture_output=True)
    assert (done.returncode, done.stdout) == (126, b"")


def test_what_asks_for_nothing_stays_as_it_is() -> None:
    mine = Path("/proc/self/oom_score_adj").read_text().strip()
    done = subprocess.run(entering([], [sys.executable, "-c", TELL]), capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == mine
    assert done.stderr == ""
