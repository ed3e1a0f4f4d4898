"""What is no product but a limit: asyncio with nothing around it, and gRPC's own asyncio server."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import V2_PATH, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_HERE = Path.cwd()


def _start_bare(setting: Setting) -> Launch:
    (port,) = free_ports(1)
    models = [f"{model.name}={model.path.absolute()}" for model in setting.models]
    return Launch([sys.executable, "-m", "benchmarks.serving.bare_ceiling", str(port), *models], _HERE, port)


def _start_echo(setting: Setting) -> Launch:
    (port,) = free_ports(1)
    models = [f"{model.name}={model.path.absolute()}" for model in setting.models]
    return Launch([sys.executable, "-m", "benchmarks.serving.grpc_echo", str(port), *models], _HERE, grpc_port=port)


BARE = Peer(
    "bare",
    "asyncio, httptools, orjson and batching, without checks, metrics, deadlines or limits: a ceiling, no product",
    _start_bare,
    {Form.JSON: V2_PATH, Form.BINARY: V2_PATH},
    distribution="uvloop",
    is_fast=True,
    reference=True,
)
ECHO = Peer(
    "grpc.aio",
    "gRPC's asyncio server, which answers with a message made beforehand and runs no model: a ceiling, no product",
    _start_echo,
    {Form.GRPC: "grpc"},
    distribution="grpcio",
    is_fast=True,
    reference=True,
)
