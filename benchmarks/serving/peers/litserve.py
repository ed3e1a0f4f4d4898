"""LitServe."""

from __future__ import annotations

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import BATCH, WINDOW_MS, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_SERVER = """
import json, os
import litserve as ls
import numpy as np, onnxruntime as ort

(NAME, SHAPE), = json.loads(os.environ["SHAPES"]).items()

class Api(ls.LitAPI):
    def setup(self, device):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(f"{NAME}.onnx", options, providers=["CPUExecutionProvider"])

    def decode_request(self, request):
        return np.array(request["inputs"][0]["data"], np.float32).reshape(SHAPE)

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, x):
        return self.session.run(None, {"input": x})[0]

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return {"outputs": [{"name": "output", "datatype": "FP32", "shape": [1, len(output)], "data": output.tolist()}]}

if __name__ == "__main__":
    api = Api(max_batch_size=int(os.environ["BATCH"]), batch_timeout=int(os.environ["WINDOW_MS"]) / 1e3)
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(os.environ["PORT"]), generate_client_file=False, log_level="warning")
"""


def _start(setting: Setting) -> Launch:
    (port,) = free_ports(1)
    setting.write({"server.py": _SERVER})
    command = [str(setting.python), "server.py"]
    return Launch(command, setting.folder, port, environment=setting.variables(PORT=str(port)), ready_path="/health")


PEER = Peer(
    "LitServe",
    f"one worker, batches up to {BATCH}, window {WINDOW_MS} ms",
    _start,
    {Form.JSON: "/predict"},
    environment="litserve",
    distribution="litserve",
    one_model=True,
)
