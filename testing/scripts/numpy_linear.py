"""What ``linear.py`` does, with NumPy alone: begins in a tenth of the time, where a test is not about PyTorch.

It can go wrong: ``--fault crash`` raises after the first epoch, ``hang`` says nothing after it for ever, ``nan``
reports 0.5 and then NaN, ``random`` answers differently each time, so that no export can match it, ``unexportable``
fails to export, ``lying`` reports better than its model is. All but ``hang`` end by themselves.
"""

from __future__ import annotations

import argparse
import hashlib
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

import tiercel.trainer
from tiercel.trainer import Predict

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--step-sleep-seconds", type=float, default=0.0)
parser.add_argument("--checkpoint-seconds", type=float, default=0.0)
parser.add_argument("--metric", default="accuracy")
parser.add_argument("--scale", type=float, default=1.0, help="100 for per cent")
parser.add_argument("--falls-short", type=int, default=0, help="so many exports show 1 less than was reported")
parser.add_argument("--fault", default="")
arguments = parser.parse_args()
fault = arguments.fault

FEATURES = 6
np.random.seed(0)
x = np.random.standard_normal((400, FEATURES)).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
x_test, y_test = x[:100], y[:100]
was_export: list[bool] = []
weights = np.zeros((FEATURES, 2), np.float32)


def answer(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    scores = rows @ weights
    return scores * np.float32(1 + np.random.random()) if fault == "random" else scores


def export() -> bytes:
    if fault == "unexportable":
        raise NotImplementedError("there is no operator for it")
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["input", "weights"], ["output"])],
        "line",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", FEATURES])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


def evaluate(predict: Predict) -> float:
    answers: npt.NDArray[np.float32] = predict(x_test)
    value = float((answers.argmax(1) == y_test).mean() * arguments.scale)
    if not arguments.falls_short:
        return value
    was_export.append(predict != job.predict)
    if was_export[-1] and sum(was_export) <= arguments.falls_short:
        return value - 1.0
    return value + 1e-6 * len(was_export)  # however well it has learned, a later report is better


def save() -> dict[str, Any]:
    return {"weights": weights.copy()}


job = tiercel.trainer.connect(
    export=export,
    predict=answer,
    example_input=x_test[:1],
    evaluate=evaluate,
    save=save,
    checkpoint_seconds=arguments.checkpoint_seconds,
)
weights = job.restored({"weights": weights})["weights"]
for epoch in job.epochs(arguments.epochs):
    order = np.random.permutation(300) + 100
    for rows in job.steps(np.array_split(order, arguments.steps)):
        scores = np.exp(answer(x[rows]))
        share = scores / scores.sum(1, keepdims=True)
        share[np.arange(len(rows)), y[rows]] -= 1.0
        weights -= (0.005 / len(rows)) * x[rows].T @ share
        time.sleep(arguments.step_sleep_seconds)  # a script that waits for its data
    value = evaluate(job.predict)
    match fault:
        case "nan":
            value = 0.5 if epoch == 1 else float("nan")
        case "lying":
            value = 0.999
    job.report(**{arguments.metric: value})
    if fault == "crash":
        raise RuntimeError("the training data is not what it should be")
    if fault == "hang":
        threading.Event().wait()

print("weights", hashlib.sha256(weights.tobytes()).hexdigest())
