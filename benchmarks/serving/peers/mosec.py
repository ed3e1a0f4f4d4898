"""mosec: Rust in front, Python workers behind it; orjson in the handlers, which is what makes it the fastest peer."""

from __future__ import annotations

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import BATCH, WINDOW_MS, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_SERVER = """
import json, os, sys
import numpy as np, onnxruntime as ort, orjson
from mosec import Runtime, Server, Worker

SHAPES = json.loads(os.environ["SHAPES"])

class Raw(Worker):
    resp_mime_type = "application/octet-stream"

    def __init__(self):
        name = os.environ["MODEL"]
        self.shape = SHAPES[name]
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(f"{name}.onnx", options, providers=["CPUExecutionProvider"])

    def deserialize(self, data):
        return np.frombuffer(data, np.float32).reshape(self.shape)

    def forward(self, rows):
        return list(self.session.run(None, {"input": np.stack(rows)})[0])

    def serialize(self, row):
        return row.tobytes()

class Json(Raw):
    resp_mime_type = "application/json"

    def deserialize(self, data):
        return np.array(orjson.loads(data)["inputs"][0]["data"], np.float32).reshape(self.shape)

    def serialize(self, row):
        output = {"name": "output", "datatype": "FP32", "shape": [1, len(row)], "data": row}
        return orjson.dumps({"outputs": [output]}, option=orjson.OPT_SERIALIZE_NUMPY)

if __name__ == "__main__":
    batch, window = int(os.environ["BATCH"]), int(os.environ["WINDOW_MS"])
    server = Server()
    server.register_runtime({
        f"/{path}/{name}": [Runtime(worker, 1, batch, window, env=[{"MODEL": name}])]
        for name in SHAPES
        for worker, path in ((Json, "json"), (Raw, "raw"))
    })
    server.run()
"""


def _start(setting: Setting) -> Launch:
    (port,) = free_ports(1)
    setting.write({"server.py": _SERVER})
    command = [str(setting.python), "server.py", "--address", "127.0.0.1", "--port", str(port)]
    return Launch(command, setting.folder, port, environment=setting.variables(), ready_path="/metrics")


PEER = Peer(
    "mosec",
    f"one worker a model and path, batches up to {BATCH}, window {WINDOW_MS} ms (0 would mean 10), orjson",
    _start,
    {Form.JSON: "/json/{model}", Form.RAW: "/raw/{model}"},
    environment="mosec",
    distribution="mosec",
    is_fast=True,
)
