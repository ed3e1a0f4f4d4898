"""The server of this project, as the agent starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import V2_PATH, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

NAME = "tiercel"


def _start(setting: Setting) -> Launch:
    http_port, grpc_port = free_ports(2)
    folder = setting.folder
    command = [
        sys.executable, "-m", "tiercel.serving",
        "--repository", str(setting.put_repository()),
        "--state-file", str(folder / "state.json"), "--lock-file", str(folder / "lock"),
        "--http-port", str(http_port), "--grpc-port", str(grpc_port),
    ]  # fmt: skip
    # Started here, so that it is this tree's server, whichever the environment has.
    return Launch(command, Path.cwd(), http_port, grpc_port, ready_path="/v2/health/ready")


PEER = Peer(
    NAME,
    "this project's server with its defaults",
    _start,
    {Form.JSON: V2_PATH, Form.BINARY: V2_PATH, Form.GRPC: "grpc"},
    distribution="tiercel",
    is_fast=True,
)
