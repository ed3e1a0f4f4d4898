"""A run's folder with a real TrainerService in it, and training processes that are ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testing.trainer_service import SCRIPTS, StartScript, StartServer, TrainerServer, TrainingProcess
from testing.warm_python import WarmPython


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """A short path, as the agent's state directory has."""
    return tmp_path / "run"


@pytest.fixture
def start_server(run_directory: Path) -> Iterator[StartServer]:
    """Start a TrainerServer in the run's folder; takes its keyword arguments."""
    servers: list[TrainerServer] = []

    def start(**options: Any) -> TrainerServer:
        server = TrainerServer(run_directory, **options)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def start_script(run_directory: Path, python: WarmPython) -> Iterator[StartScript]:
    """Start ``testing/scripts/NAME.py`` with arguments, attached to the run unless ``alone``."""
    processes: list[TrainingProcess] = []

    def start(name: str, *arguments: str, alone: bool = False, **environment: str) -> TrainingProcess:
        process = TrainingProcess(
            str(SCRIPTS / f"{name}.py"),
            *arguments,
            run_directory=None if alone else run_directory,
            environment=environment,
            python=python,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
