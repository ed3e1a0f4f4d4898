"""What an import costs: training scripts and the inference server import the package too."""

from __future__ import annotations

import operator
import subprocess
import sys
from pathlib import Path

import pytest

import tiercel


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(result.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    heavy = {"grpc", "google.protobuf", "pydantic", "yaml", "aiohttp", "asyncio", "tiercel.broker"}
    assert modules_after("import tiercel") & heavy == set()


def test_the_client_needs_no_server_and_no_numbers() -> None:
    heavy = {"torch", "numpy", "sqlalchemy", "aiohttp", "tiercel.broker.server", "tiercel.broker.store"}
    assert modules_after("from tiercel import Client, SyncClient, load_spec") & heavy == set()


def test_every_public_name_is_there_and_typed() -> None:
    for name in dir(tiercel):
        assert getattr(tiercel, name) is not None
    stub = Path(tiercel.__file__).with_name("__init__.pyi").read_text()
    typed = {line.split(" as ")[1] for line in stub.splitlines() if " as " in line}
    assert typed == {
        name for name in dir(tiercel) if name[0].isupper() or name in {"job", "load_spec", "parse_spec"}
    } - {"Any"}


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="'clint'"):
        operator.attrgetter("clint")(tiercel)
