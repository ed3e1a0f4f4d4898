"""The engine of the tests in containers, stood in for by a program that sleeps."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path

import pytest

from testing import docker


def test_an_engine_that_lives_on_for_others_is_not_complained_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"dockerd": f"echo $$ > {tmp_path}/pid; exec sleep 600", "docker": f"cat {tmp_path}/pid"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        docker._start(tmp_path, tmp_path / "runtime", "unix:///nowhere")
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert told == []
