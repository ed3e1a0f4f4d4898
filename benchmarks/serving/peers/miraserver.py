"""miraserver ("lite-server"): Rust in front, Python workers behind it."""

from __future__ import annotations

import json
import os

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import BATCH, V2_PATH, WINDOW_MS, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_MODEL = """
import json, os
import numpy as np, onnxruntime as ort
from lite_server import LitAPI

FOLDER = os.path.dirname(os.path.abspath(__file__))
SHAPE = json.load(open(os.path.join(FOLDER, "shape.json")))

class Model(LitAPI):
    def setup(self, device):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = os.path.join(FOLDER, "model.onnx")
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    async def decode_request(self, request):
        return np.array(request["inputs"][0]["data"], np.float32).reshape(SHAPE)

    async def batch(self, inputs):
        return np.stack(inputs)

    async def predict(self, x):
        single = x.ndim == len(SHAPE)  # a batch of one does not go through batch()
        found = self.session.run(None, {"input": x[None] if single else x})[0]
        return found[0] if single else found

    async def unbatch(self, output):
        return list(output)

    async def encode_response(self, output):
        tensor = {"name": "output", "datatype": "FP32", "shape": [1, len(output)], "data": output.tolist()}
        return {"outputs": [tensor]}
"""
_CONFIG = """
max_batch_size: {batch}
batch_timeout: {seconds}
accelerator: cpu
workers_per_device: 1
max_queue_size: 1000
"""
_SERVER = """
server:
  host: 127.0.0.1
  http_port: {http}
  grpc_port: {grpc}
  metrics_port: {metrics}
grpc:
  enabled: false
metrics:
  enabled: false
model_repository:
  path: ./models
orchestration:
  control_mode: explicit
  load_models: [{models}]
"""


def _start(setting: Setting) -> Launch:
    http_port, grpc_port, metrics_port = free_ports(3)
    repository = setting.put_repository()
    for model in setting.models:
        folder = repository / model.name / "1"
        (folder / "model.py").write_text(_MODEL, encoding="utf-8")
        (folder / "shape.json").write_text(json.dumps(model.kind.shape), encoding="utf-8")
        config = _CONFIG.format(batch=BATCH, seconds=WINDOW_MS / 1e3)
        (folder / "config.yaml").write_text(config, encoding="utf-8")
    names = ", ".join(model.name for model in setting.models)
    settings = _SERVER.format(http=http_port, grpc=grpc_port, metrics=metrics_port, models=names)
    (setting.folder / "server.yaml").write_text(settings, encoding="utf-8")
    command = [str(setting.python), "-m", "lite_server", "serve", "--config", "server.yaml"]
    # Its workers are started as python3, whichever that is.
    path = f"{setting.python.parent}:{os.defpath}"
    return Launch(command, setting.folder, http_port, environment={"PATH": path}, ready_path="/readyz")


PEER = Peer(
    "miraserver",
    f"one worker a model, batches up to {BATCH}, window {WINDOW_MS} ms",
    _start,
    {Form.JSON: V2_PATH},
    environment="miraserver",
    distribution="miraserver",
    is_fast=True,
)
