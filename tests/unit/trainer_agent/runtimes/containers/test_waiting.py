"""The program of a container that waits, without the container: it runs what was ordered, all of it, or nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tiercel.trainer_agent.runtimes.containers.waiting import LEFT_OUT, LENGTH_BYTES, START, digest
from tiercel.trainer_agent.runtimes.warm.script import ENTERED, WarmOrder

SCRIPT = "import os, sys\nprint('ran', 'colorsys' in sys.modules, sys.stdin.read())\nraise SystemExit(7)"
SEEDS = "import random\nrandom.seed(7)\nprint('loud')"


def order(folder: Path) -> bytes:
    (folder / "train.py").write_text(SCRIPT)
    stored = WarmOrder(
        script=str(folder / "train.py"),
        module="",
        arguments=(),
        working_directory=str(folder),
        environment={"LANG": "C.UTF-8"},
        threads=1,
        ended_first=0,
    ).to_bytes()
    return b"%0*x" % (LENGTH_BYTES, len(stored)) + stored


def wait(given: bytes, *names: str, path: Path | None = None) -> tuple[int, list[bytes], bytes]:
    """Exit code, lines of standard output, and standard error."""
    environment = {"LANG": "C.UTF-8"} | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, "-c", START, "1", *names]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=60, env=environment)
    return done.returncode, done.stdout.splitlines(keepends=True), done.stderr


def test_it_says_that_it_is_ready_and_becomes_the_script(tmp_path: Path) -> None:
    code, lines, errors = wait(order(tmp_path) + b"more", "colorsys", "no_such_module")
    ready, entered, ran = lines
    assert ready.startswith(LEFT_OUT)
    assert json.loads(ready) == {
        "left_out": {"no_such_module": "it cannot be imported (ModuleNotFoundError)"},
        "ready": digest(),
    }
    assert (entered, ran, errors, code) == (ENTERED, b"ran True \n", ENTERED, 7)


@pytest.mark.parametrize("missing", [1, 20, 10_000])
def test_an_order_that_breaks_off_is_none(tmp_path: Path, missing: int) -> None:
    code, lines, errors = wait(order(tmp_path)[:-missing])
    assert (code, len(lines), errors) == (0, 1, b"")


def test_an_order_without_a_length_is_none() -> None:
    assert wait(b"so many bytes as " * 4)[0] == 0


def test_what_a_package_does_that_it_must_not_is_undone_and_what_it_writes_goes_nowhere(tmp_path: Path) -> None:
    (tmp_path / "seeds.py").write_text(SEEDS)
    # A variable of Python's own, which the run does not have.
    code, lines, errors = wait(order(tmp_path), "seeds", "colorsys", path=tmp_path)
    left_out, ready, cold = lines
    assert json.loads(left_out) == {"left_out": {"seeds": "it seeds random numbers when it is imported"}}
    assert json.loads(ready)["ready"] == digest()
    assert cold == b"cold: the variable PYTHONPATH takes effect when packages are imported\n"
    assert (code, errors) == (0, b"")


def test_where_it_cannot_work_nothing_of_the_script_has_run(tmp_path: Path) -> None:
    stored = order(tmp_path).replace(str(tmp_path).encode() + b'", "environment', b"/no-such" + b'", "environment')
    length = len(stored) - LENGTH_BYTES
    code, lines, _ = wait(b"%0*x" % (LENGTH_BYTES, length) + stored[LENGTH_BYTES:])
    assert lines[1].startswith(b"it could not become the run (FileNotFoundError: ")
    assert len(lines) == 2
    assert code != 0
