"""What a command imports before it does anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "onnxruntime", "sqlalchemy", "aiomqtt", "aiohttp", "numpy", "tiercel.broker.server"}


def modules_of(tmp_path: Path, *arguments: str) -> set[str]:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from tiercel.broker.cli import main; main()"
    )
    environment = {**os.environ, "TIERCEL_STATE_DIR": str(tmp_path), "TIERCEL_TOKEN": "any"}
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    return set(result.stderr.split())


@pytest.mark.parametrize("arguments", [("--help",), ("up", "--help"), ("version",)])
def test_help_imports_neither_client_nor_server(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    modules = modules_of(tmp_path, *arguments)

    assert "typer" in modules
    assert modules & (HEAVY | {"grpc", "yaml", "google.protobuf"}) == set()


def test_listing_imports_no_server_and_nothing_that_only_sending_or_drawing_needs(tmp_path: Path) -> None:
    modules = modules_of(tmp_path, "ls", "--broker", "127.0.0.1:1")

    assert "grpc" in modules
    assert modules & (HEAVY | {"yaml", "rich", "pathspec", "cryptography"}) == set()
