"""What the job of documents' blocks trains: a plane, fitted by gradient descent."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

import tiercel.trainer

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--pause", type=float, default=0.0, help="seconds of sleep in each epoch")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.3)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--act", default="relu")
options = parser.parse_args()

random = np.random.default_rng(options.seed)
x = random.uniform(-1, 1, (256, 3)).astype(np.float32)
y = (x @ np.array([[3.0], [-2.0], [1.0]], np.float32)).astype(np.float32)
plane = np.zeros((3, 1), np.float32)


def predict(rows: np.ndarray) -> np.ndarray:
    """What the ONNX file has to answer."""
    return (rows @ plane).astype(np.float32)


def export() -> bytes:
    """The model as ONNX."""
    weights = helper.make_tensor("plane", TensorProto.FLOAT, [3, 1], plane.ravel())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["input", "plane"], ["output"])],
        "plane",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["rows", 1])],
        [weights],
    )
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )


def evaluate(predict: Callable[[np.ndarray], np.ndarray]) -> float:
    """The part of points that are told to 0.3."""
    return float((np.abs(predict(x) - y) < 0.3).mean())


job = tiercel.trainer.connect(
    export=export, predict=predict, example_input=x[:1], evaluate=evaluate, save=lambda: plane
)
plane = job.restored(plane)  # of an earlier run of the job
for _ in job.epochs(options.epochs):
    time.sleep(options.pause)
    plane = plane - options.lr * x.T @ (predict(x) - y) / len(x)
    job.report(accuracy=evaluate(predict))
Path("reports").mkdir(exist_ok=True)
Path("reports/plane.html").write_text(f"<p>{plane.ravel().tolist()}</p>")
