"""What a command imports before it does anything: that decides how long people wait for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Python itself has 35 to 60 of them by its start, depending on its version and on what an environment's .pth files do.
MOST_FOR_HELP = 130
MOST_FOR_A_COMMANDS_HELP = 190
MOST_FOR_A_LISTING = 375
HEAVY = {"torch", "onnxruntime", "sqlalchemy", "aiomqtt", "aiohttp", "numpy", "tiercel.broker.server", "typer"}
ONLY_WHEN_NEEDED = HEAVY | {"pydantic", "yaml", "rich", "pathspec", "cryptography"}


def modules_of(tmp_path: Path, *arguments: str, environment: dict[str, str] | None = None) -> set[str]:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from tiercel.broker.cli import main; main()"
    )
    known = {**os.environ, "TIERCEL_STATE_DIR": str(tmp_path), "TIERCEL_TOKEN": "any", **(environment or {})}
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=known
    )
    return set(result.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--help",), ("node", "data", "--help"), ("--version",)])
def test_the_help_of_groups_imports_no_command(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    modules = modules_of(tmp_path, *arguments)

    assert "click" in modules
    assert modules & (ONLY_WHEN_NEEDED | {"grpc", "asyncio", "google.protobuf", "dataclasses"}) == set()
    assert len(modules) <= MOST_FOR_HELP


@pytest.mark.parametrize("command", ["up", "ls", "submit"])
def test_the_help_of_a_command_imports_neither_client_nor_server(tmp_path: Path, command: str) -> None:
    modules = modules_of(tmp_path, command, "--help")

    assert modules & (ONLY_WHEN_NEEDED | {"grpc", "asyncio", "google.protobuf"}) == set()
    assert len(modules) <= MOST_FOR_A_COMMANDS_HELP


@pytest.mark.parametrize("arguments", [("ls",), ("ls", "--json"), ("nodes",), ("endpoints",)])
def test_listings_import_no_server_and_nothing_that_only_sending_or_drawing_needs(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    modules = modules_of(tmp_path, *arguments, "--broker", "127.0.0.1:1")

    assert "grpc" in modules
    assert modules & ONLY_WHEN_NEEDED == set()
    assert len(modules) <= MOST_FOR_A_LISTING


def test_completion_imports_no_client(tmp_path: Path) -> None:
    asked = {"_TIERCEL_COMPLETE": "bash_complete", "COMP_WORDS": "tiercel show k", "COMP_CWORD": "2"}
    modules = modules_of(tmp_path, environment={**asked, "XDG_CACHE_HOME": str(tmp_path)})

    assert modules & (ONLY_WHEN_NEEDED | {"grpc", "asyncio", "google.protobuf"}) == set()
    assert len(modules) <= MOST_FOR_A_COMMANDS_HELP
