"""Triton: the server's binary out of the nvidia-pytriton wheel, its Python backend with ONNX Runtime in it.

The wheel has no ONNX Runtime backend, and neither GPU nor driver are needed. The backend's stub for this Python lies
beside the backend and has to be copied into it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.serving.bodies import Form
from benchmarks.serving.environments import UnavailableError
from benchmarks.serving.models import CLASSES, Model
from benchmarks.serving.peers.contract import BATCH, V2_PATH, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_MODEL = """
import os
import numpy as np, onnxruntime as ort
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "input").as_numpy() for request in requests]
        found = self.session.run(None, {"input": np.concatenate(rows) if len(rows) > 1 else rows[0]})[0]
        answers, start = [], 0
        for row in rows:
            part = found[start:start + len(row)]
            start += len(row)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("output", part)]))
        return answers
"""
_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: {batch}
dynamic_batching {{ }}
input [ {{ name: "input" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
output [ {{ name: "output" data_type: TYPE_FP32 dims: [ {classes} ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""


def _start(setting: Setting) -> Launch:
    http_port, grpc_port = free_ports(2)
    repository = setting.put_repository()
    for model in setting.models:
        folder = repository / model.name
        (folder / "config.pbtxt").write_text(_config(model), encoding="utf-8")
        (folder / "1" / "model.py").write_text(_MODEL, encoding="utf-8")
    home = _home(setting)
    backends = _backends(home, setting.folder / "backends")
    command = [
        str(home / "bin" / "tritonserver"), "--model-repository", str(repository),
        "--backend-directory", str(backends), "--http-address", "127.0.0.1", "--http-port", str(http_port),
        "--grpc-address", "127.0.0.1", "--grpc-port", str(grpc_port), "--allow-metrics", "false",
        "--log-verbose", "0",
    ]  # fmt: skip
    environment = {
        "PATH": f"{setting.python.parent}:/usr/bin:/bin",
        "VIRTUAL_ENV": str(setting.python.parents[1]),
        "PYTHONPATH": str(_site_packages(setting)),
        "LD_LIBRARY_PATH": ":".join(
            str(folder) for folder in (_site_packages(setting) / "nvidia_pytriton.libs", Path(sys.base_prefix) / "lib")
        ),
    }
    ready = "/v2/health/ready"
    return Launch(command, setting.folder, http_port, grpc_port, environment=environment, ready_path=ready)


def _config(model: Model) -> str:
    dims = ", ".join(map(str, model.kind.shape))
    return _CONFIG.format(name=model.name, batch=BATCH, dims=dims, classes=CLASSES)


def _site_packages(setting: Setting) -> Path:
    return setting.python.parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def _home(setting: Setting) -> Path:
    home = _site_packages(setting) / "pytriton" / "tritonserver"
    if not (home / "bin" / "tritonserver").exists():
        raise UnavailableError("the wheel has no tritonserver for this machine")
    return home


def _backends(home: Path, folder: Path) -> Path:
    """A copy of the backends with the stub for this Python in its place; small, and the wheel stays as it was."""
    shutil.copytree(home / "backends", folder)
    stub = home / "python_backend_stubs" / f"3.{sys.version_info.minor}" / "triton_python_backend_stub"
    if not stub.exists():
        raise UnavailableError(f"the wheel has no backend for Python 3.{sys.version_info.minor}")
    shutil.copy2(stub, folder / "python" / stub.name)
    return folder


PEER = Peer(
    "Triton",
    f"C++ server, one instance of the Python backend with ONNX Runtime, dynamic batching up to {BATCH} without delay",
    _start,
    {Form.JSON: V2_PATH, Form.BINARY: V2_PATH, Form.GRPC: "grpc"},
    environment="triton",
    distribution="nvidia-pytriton",
    version="2.51.0",
    is_fast=True,
)
