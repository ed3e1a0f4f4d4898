"""BentoML."""

from __future__ import annotations

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import BATCH, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_SERVICE = """
import json, os
import bentoml
import numpy as np, onnxruntime as ort

(NAME, SHAPE), = json.loads(os.environ["SHAPES"]).items()

@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Service:
    def __init__(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(f"{NAME}.onnx", options, providers=["CPUExecutionProvider"])

    @bentoml.api(batchable=True, batch_dim=0, max_batch_size=int(os.environ["BATCH"]))
    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.session.run(None, {"input": x.astype(np.float32)})[0]
"""


def _start(setting: Setting) -> Launch:
    (port,) = free_ports(1)
    setting.write({"service.py": _SERVICE})
    environment = setting.variables(
        BENTOML_HOME=str(setting.folder / "home"),
        BENTOML_DO_NOT_TRACK="true",
        PATH=f"{setting.python.parent}:/usr/bin:/bin",
    )
    command = [setting.program("bentoml"), "serve", "service:Service", "--host", "127.0.0.1", "--port", str(port)]
    return Launch(command, setting.folder, port, environment=environment, ready_path="/readyz")


PEER = Peer(
    "BentoML",
    f"one worker, adaptive batching up to {BATCH}",
    _start,
    {Form.PLAIN: "/predict"},
    environment="bentoml",
    distribution="bentoml",
    one_model=True,
)
