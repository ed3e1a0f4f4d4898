"""MLServer, with the model in the server's own process: its worker processes do not start with a current uvloop."""

from __future__ import annotations

import json

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import V2_PATH, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_RUNTIME = """
import numpy as np, onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class OnnxModel(MLModel):
    async def load(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload):
        row = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32, copy=False)
        found = self._session.run(None, {"input": row})[0]
        output = NumpyCodec.encode_output("output", found)
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])
"""


def _start(setting: Setting) -> Launch:
    http_port, grpc_port, metrics_port = free_ports(3)
    settings = {
        "host": "127.0.0.1", "http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port,
        "parallel_workers": 0, "debug": False, "use_structured_logging": False, "logging_settings": None,
    }  # fmt: skip
    files = {"settings.json": json.dumps(settings), "runtime.py": _RUNTIME}
    for model in setting.models:
        parameters = {"uri": str(setting.folder / f"{model.name}.onnx"), "version": "1"}
        described = {"name": model.name, "implementation": "runtime.OnnxModel", "parameters": parameters}
        files[f"{model.name}/model-settings.json"] = json.dumps(described)
    setting.write(files)
    command = [setting.program("mlserver"), "start", "."]
    environment = {"PYTHONPATH": str(setting.folder)}
    ready = "/v2/health/ready"
    return Launch(command, setting.folder, http_port, grpc_port, environment=environment, ready_path=ready)


PEER = Peer(
    "MLServer",
    "parallel_workers 0, a custom runtime with ONNX Runtime, no batching (its window cost time and gained nothing)",
    _start,
    {Form.JSON: V2_PATH, Form.GRPC: "grpc"},
    environment="mlserver",
    distribution="mlserver",
)
