"""Folders that are sent to a broker as projects, and who sends them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testing.brokers import tenant_token
from testing.jobs import make_spec
from tiercel import Client, JobSpec
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.server import Broker
from tiercel.core.projects import Project

LIMIT = 50 * 1024**2


def make_project(folder: Path) -> Path:
    """A folder with a few modules and some data."""
    files = {"train.py": "print('train')", "pkg/__init__.py": "", "pkg/model.py": "WIDTH = 3", "config.json": "{}"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "data.bin").write_bytes(os.urandom(3 * 1024**2))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "settings").symlink_to("config.json")
    return folder


def spec_of(folder: Path, command: Sequence[str] = ("python", "train.py"), **changes: Any) -> JobSpec:
    fields = {"script": None, "module": "", "command": tuple(command), "project": Project(folder=str(folder))}
    return make_spec(**(fields | changes))


def client_of(broker: Broker, tmp_path: Path, tenant: str = "alice") -> Client:
    return Client(broker.broker_address, token=tenant_token(tmp_path / "broker", tenant))


def connection_of(broker: Broker, tmp_path: Path, tenant: str = "alice") -> Connection:
    return Connection(broker.broker_address, tenant_token(tmp_path / "broker", tenant), ClientOptions())
