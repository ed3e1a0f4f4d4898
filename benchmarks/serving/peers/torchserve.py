"""TorchServe: Java in front, Python workers behind it; needs a Java 17 on the machine."""

from __future__ import annotations

import json
import os
import subprocess

from benchmarks.serving.bodies import Form
from benchmarks.serving.environments import UnavailableError
from benchmarks.serving.models import Model
from benchmarks.serving.peers.contract import BATCH, WINDOW_MS, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_HANDLER = """
import json, os
import numpy as np, onnxruntime as ort

SHAPES = json.loads(os.environ["SHAPES"])

class Handler:
    def initialize(self, context):
        folder = context.system_properties["model_dir"]
        name = context.manifest["model"]["modelName"]
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = os.path.join(folder, f"{name}.onnx")
        self.shape = SHAPES[name]
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def handle(self, requests, context):
        rows = []
        for request in requests:
            body = request.get("body") or request.get("data")
            if isinstance(body, (bytes, bytearray)):
                body = json.loads(body)
            rows.append(np.array(body["inputs"][0]["data"], np.float32).reshape(self.shape))
        found = self.session.run(None, {"input": np.stack(rows)})[0]
        return [
            {"outputs": [{"name": "output", "datatype": "FP32", "shape": [1, len(row)], "data": row.tolist()}]}
            for row in found
        ]

_service = Handler()

def handle(data, context):
    if not hasattr(_service, "session"):
        _service.initialize(context)
    return _service.handle(data, context) if data is not None else None
"""
_SETTINGS = """
inference_address=http://127.0.0.1:{http}
management_address=http://127.0.0.1:{management}
metrics_address=http://127.0.0.1:{metrics}
grpc_inference_port={grpc}
grpc_management_port={grpc_management}
model_store=store
load_models=all
disable_token_authorization=true
enable_envvars_config=false
install_py_dep_per_model=false
disable_system_metrics=true
models={models}
"""


def _start(setting: Setting) -> Launch:
    names = ("http", "management", "metrics", "grpc", "grpc_management")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    setting.write({"handler.py": _HANDLER})
    (setting.folder / "store").mkdir()
    for model in setting.models:
        _archive(setting, model)
    models = {model.name: {"1.0": _described(model)} for model in setting.models}
    settings = _SETTINGS.format(**ports, models=json.dumps(models))
    (setting.folder / "config.properties").write_text(settings, encoding="utf-8")
    command = [
        setting.program("torchserve"), "--start", "--foreground", "--ncs", "--disable-token-auth",
        "--ts-config", "config.properties", "--model-store", "store",
        "--models", *(f"{model.name}.mar" for model in setting.models),
    ]  # fmt: skip
    environment = setting.variables(
        PATH=f"{setting.python.parent}:{os.environ.get('PATH', os.defpath)}",
        TEMP=str(setting.folder),
        LOG_LOCATION=str(setting.folder / "logs"),
        METRICS_LOCATION=str(setting.folder / "logs"),
    )
    return Launch(
        command, setting.folder, ports["http"], environment=environment, ready_path="/ping", ready_seconds=120.0
    )


def _described(model: Model) -> dict[str, object]:
    return {
        "defaultVersion": True,
        "marName": f"{model.name}.mar",
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": BATCH,
        "maxBatchDelay": WINDOW_MS,
        "responseTimeout": 60,
    }


def _archive(setting: Setting, model: Model) -> None:
    command = [
        setting.program("torch-model-archiver"), "--model-name", model.name, "--version", "1.0",
        "--serialized-file", f"{model.name}.onnx", "--handler", "handler.py", "--export-path", "store",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=setting.folder, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise UnavailableError(f"torch-model-archiver: {done.stderr.strip()[-200:]}")


PEER = Peer(
    "TorchServe",
    f"one worker a model, batches up to {BATCH}, window {WINDOW_MS} ms",
    _start,
    {Form.JSON: "/predictions/{model}"},
    environment="torchserve",
    distribution="torchserve",
    programs=("java",),
)
