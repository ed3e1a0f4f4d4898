"""KServe's Python SDK."""

from __future__ import annotations

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import V2_PATH, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_SERVER = """
import json, os, sys
import numpy as np, onnxruntime as ort
from kserve import InferOutput, InferResponse, Model, ModelServer

class OnnxModel(Model):
    def __init__(self, name):
        super().__init__(name)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        tensor = payload.inputs[0]
        row = tensor.as_numpy().astype(np.float32, copy=False).reshape(tensor.shape)
        found = self.session.run(None, {"input": row})[0]
        output = InferOutput(name="output", shape=list(found.shape), datatype="FP32")
        output.set_data_from_numpy(found, binary_data=tensor.data is None or payload.from_grpc)
        return InferResponse(model_name=self.name, infer_outputs=[output], response_id=payload.id or "")

if __name__ == "__main__":
    server = ModelServer(
        http_port=int(os.environ["HTTP_PORT"]), grpc_port=int(os.environ["GRPC_PORT"]), workers=1,
        access_log_format=None)
    server.start([OnnxModel(name) for name in json.loads(os.environ["SHAPES"])])
"""


def _start(setting: Setting) -> Launch:
    http_port, grpc_port = free_ports(2)
    setting.write({"server.py": _SERVER})
    environment = setting.variables(HTTP_PORT=str(http_port), GRPC_PORT=str(grpc_port))
    command = [str(setting.python), "server.py", "--enable_docs_url", "false"]
    ready = f"/v2/models/{setting.models[0].name}/ready"
    return Launch(command, setting.folder, http_port, grpc_port, environment=environment, ready_path=ready)


PEER = Peer(
    "KServe",
    "KServe's Python SDK, one worker, ONNX Runtime in predict, no batching (it has none)",
    _start,
    {Form.JSON: V2_PATH, Form.BINARY: V2_PATH, Form.GRPC: "grpc"},
    environment="kserve",
    distribution="kserve",
)
