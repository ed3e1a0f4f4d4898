"""A training script for tests: a perceptron on scikit-learn's digits, written with NumPy.

To import PyTorch and to export from it is several times the CPU time of all that happens here; tests that are about
PyTorch have scripts of their own.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tiercel.trainer
from tiercel.trainer import Predict
from tiercel.trainer_agent.workloads.data import load_digits

Rows = npt.NDArray[np.float32]

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--step-sleep-seconds", type=float, default=0.005)
parser.add_argument("--waits-for", type=Path, help="until that file is there it learns no more once it is 0.8 right")
arguments = parser.parse_args()

BATCH_ROWS = 64
random = np.random.default_rng(0)
images = load_digits()
sizes = (64, arguments.width, arguments.width, 10)
weights = [
    (random.uniform(-1, 1, size=(before + 1, after)) / before**0.5).astype(np.float32)  # the last row is the bias
    for before, after in itertools.pairwise(sizes)
]


def activations(rows: Rows) -> list[Rows]:
    """Of each layer, the rows themselves first and the scores last."""
    found = [rows.reshape(len(rows), -1)]
    for number, layer in enumerate(weights):
        scores = found[-1] @ layer[:-1] + layer[-1]
        found.append(scores if number == len(weights) - 1 else np.maximum(scores, 0))
    return found


def learn(rows: Rows, classes: npt.NDArray[np.int64]) -> None:
    """One step down the gradient of the cross entropy."""
    found = activations(rows)
    chances = np.exp(found[-1] - found[-1].max(axis=1, keepdims=True))
    slope = chances / chances.sum(axis=1, keepdims=True)
    slope[np.arange(len(rows)), classes] -= 1
    slope /= len(rows)
    for layer, below in zip(weights[::-1], found[-2::-1], strict=True):
        passed_on = (slope @ layer[:-1].T) * (below > 0)
        layer[:-1] -= arguments.learning_rate * (below.T @ slope)
        layer[-1] -= arguments.learning_rate * slope.sum(axis=0)
        slope = passed_on


def predict(rows: Rows) -> Rows:
    return activations(rows)[-1]


def export() -> ModelProto:
    nodes = [helper.make_node("Flatten", ["input"], ["flat"])]
    tensors, last = [], "flat"
    for number, layer in enumerate(weights):
        tensors += [numpy_helper.from_array(layer[:-1], f"w{number}"), numpy_helper.from_array(layer[-1], f"b{number}")]
        name = "output" if number == len(weights) - 1 else f"sum{number}"
        nodes.append(helper.make_node("Gemm", [last, f"w{number}", f"b{number}"], [name]))
        if name != "output":
            last = f"layer{number}"
            nodes.append(helper.make_node("Relu", [name], [last]))
    taken = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["rows", 8, 8])
    given = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["rows", 10])
    graph = helper.make_graph(nodes, "digits", [taken], [given], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def evaluate(predict: Predict) -> float:
    scores: Rows = predict(images.x_test)
    return float((scores.argmax(axis=1) == images.y_test).mean())


def is_waiting() -> bool:
    return right >= 0.8 and arguments.waits_for is not None and not arguments.waits_for.exists()


job = tiercel.trainer.connect(
    export=export,
    predict=predict,
    example_input={"input": images.x_test[:1]},
    evaluate=evaluate,
    save=lambda: [layer.copy() for layer in weights],
)
weights = job.restored(weights)
right = evaluate(predict)
for _ in job.epochs(arguments.epochs):
    order = random.permutation(len(images.x_train))
    for rows in job.steps(np.array_split(order, len(order) // BATCH_ROWS)):
        if not is_waiting():
            learn(images.x_train[rows], images.y_train[rows])
        time.sleep(arguments.step_sleep_seconds)  # a script that waits for its data
    right = evaluate(job.predict)
    job.report(accuracy=right)
