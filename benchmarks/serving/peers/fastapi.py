"""FastAPI with ONNX Runtime, as most people begin."""

from __future__ import annotations

from benchmarks.serving.bodies import Form
from benchmarks.serving.peers.contract import V2_PATH, Peer, Setting
from benchmarks.serving.processes import Launch, free_ports

_SERVER = """
import json, os
import numpy as np, onnxruntime as ort
from fastapi import FastAPI
from pydantic import BaseModel

def opened(name):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(f"{name}.onnx", options, providers=["CPUExecutionProvider"])

sessions = {name: opened(name) for name in json.loads(os.environ["SHAPES"])}
app = FastAPI()

class Tensor(BaseModel):
    name: str
    shape: list[int]
    datatype: str
    data: list[float]

class Question(BaseModel):
    inputs: list[Tensor]

class Answer(BaseModel):
    outputs: list[Tensor]

@app.get("/ready")
def ready():
    return {}

@app.post("/v2/models/{name}/infer")
def infer(name: str, question: Question) -> Answer:
    tensor = question.inputs[0]
    row = np.array(tensor.data, np.float32).reshape(tensor.shape)
    found = sessions[name].run(None, {"input": row})[0]
    tensor = Tensor(name="output", shape=list(found.shape), datatype="FP32", data=found.ravel().tolist())
    return Answer(outputs=[tensor])
"""


def _start(setting: Setting) -> Launch:
    (port,) = free_ports(1)
    setting.write({"server.py": _SERVER})
    command = [
        str(setting.python), "-m", "uvicorn", "server:app", "--host", "127.0.0.1", "--port", str(port),
        "--no-access-log",
    ]  # fmt: skip
    return Launch(command, setting.folder, port, environment=setting.variables(), ready_path="/ready")


PEER = Peer(
    "FastAPI",
    "FastAPI with pydantic, uvicorn with uvloop and httptools, the model in FastAPI's threads, no batching",
    _start,
    {Form.JSON: V2_PATH},
    environment="fastapi",
    distribution="fastapi",
)
