"""A training script for tests: learns a line with NumPy in a millisecond an epoch, or goes wrong in one of these ways.

``--fault crash`` raises after the first epoch, ``hang`` says nothing after it for ever, ``nan`` reports 0.5 and then
NaN, ``random`` answers differently each time, so that no export can match it, ``unexportable`` fails to export,
``lying`` reports better than its model is. All but ``hang`` end by themselves.
"""

from __future__ import annotations

import argparse
import threading
import time

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tiercel.trainer
from tiercel.trainer import Predict

Rows = npt.NDArray[np.float32]

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--step-sleep-seconds", type=float, default=0.0)
parser.add_argument("--checkpoint-seconds", type=float, default=0.0)
parser.add_argument("--fault", default="")
arguments = parser.parse_args()
fault = arguments.fault

random = np.random.default_rng(0)
x = random.normal(size=(400, 6)).astype(np.float32)
y = np.eye(2, dtype=np.float32)[(x.sum(axis=1) > 0).astype(np.int64)]
weights = np.zeros((6, 2), np.float32)


def predict(rows: Rows) -> Rows:
    scores: Rows = rows @ weights
    return scores * np.float32(1 + random.random()) if fault == "random" else scores


def export() -> ModelProto:
    if fault == "unexportable":
        raise NotImplementedError("there is no operator for it")
    node = helper.make_node("MatMul", ["input", "weights"], ["scores"])
    taken = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["rows", 6])
    given = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 2])
    tensors = [numpy_helper.from_array(weights, "weights")]
    graph = helper.make_graph([node], "line", [taken], [given], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def evaluate(predict: Predict) -> float:
    answers: Rows = predict(x[:100])
    return float((answers.argmax(axis=1) == y[:100].argmax(axis=1)).mean())


job = tiercel.trainer.connect(
    export=export,
    predict=predict,
    example_input={"input": x[:1]},
    evaluate=evaluate,
    save=weights.copy,
    checkpoint_seconds=arguments.checkpoint_seconds,
)
weights[:] = job.restored(weights)
for epoch in job.epochs(arguments.epochs):
    for rows in job.steps(np.array_split(random.permutation(np.arange(100, 400)), arguments.steps)):
        chances = np.exp(x[rows] @ weights)
        slope = chances / chances.sum(axis=1, keepdims=True) - y[rows]
        weights -= np.float32(0.1 / len(rows)) * (x[rows].T @ slope)
        time.sleep(arguments.step_sleep_seconds)  # a script that waits for its data
    value = evaluate(job.predict)
    match fault:
        case "nan":
            value = 0.5 if epoch == 1 else float("nan")
        case "lying":
            value = 0.999
    job.report(accuracy=value)
    if fault == "crash":
        raise RuntimeError("the training data is not what it should be")
    if fault == "hang":
        threading.Event().wait()
