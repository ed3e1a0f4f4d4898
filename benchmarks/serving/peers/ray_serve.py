"""Ray Serve."""

from __future__ import annotations

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import BATCH, WINDOW_MS, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_SERVER = """
import json, os, signal, threading
import numpy as np, onnxruntime as ort, ray
from ray import serve

BATCH, WINDOW = int(os.environ["BATCH"]), int(os.environ["WINDOW_MS"]) / 1e3

@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.1})
class Model:
    def __init__(self, path, shape):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.shape = shape

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WINDOW)
    async def predict(self, rows):
        return list(self.session.run(None, {"input": np.stack(rows)})[0])

    async def __call__(self, request):
        question = await request.json()
        row = np.array(question["inputs"][0]["data"], np.float32).reshape(self.shape)
        found = await self.predict(row)
        output = {"name": "output", "datatype": "FP32", "shape": [1, len(found)], "data": found.tolist()}
        return {"outputs": [output]}

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["PORT"])})
    for name, shape in json.loads(os.environ["SHAPES"]).items():
        model = Model.bind(os.path.abspath(f"{name}.onnx"), shape)
        serve.run(model, name=name, route_prefix=f"/{name}", blocking=False)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    open("ready", "w").close()
    ended.wait()
    serve.shutdown()
    ray.shutdown()
"""


def _start(setting: Setting) -> Launch:
    (port,) = free_ports(1)
    setting.write({"server.py": _SERVER})
    environment = setting.variables(
        PORT=str(port),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_AUTH_MODE="disabled",
        PATH=f"{setting.python.parent}:/usr/bin:/bin",
    )
    command = [str(setting.python), "server.py"]
    return Launch(
        command,
        setting.folder,
        port,
        environment=environment,
        ready_path="/-/healthz",
        ready_file=setting.folder / "ready",
        ready_seconds=120.0,
    )


PEER = Peer(
    "Ray Serve",
    f"one replica a model, @serve.batch up to {BATCH}, window {WINDOW_MS} ms",
    _start,
    {Form.JSON: "/{model}"},
    environment="ray",
    distribution="ray",
)
