"""A training script for tests: versions of so many megabytes, one more whenever a file's number grows.

The file's number, 1 or more, is the tenth above 0.5 that the metric has. All but a few of the bytes count for nothing
in the answers, which differ between versions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tiercel.trainer
from tiercel.trainer import Predict

Rows = npt.NDArray[np.float32]

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=int, default=1)
parser.add_argument("--stage", type=Path, required=True, help="the file with the number")
arguments = parser.parse_args()

FEATURES = 6
x = np.random.default_rng(0).standard_normal((20, FEATURES)).astype(np.float32)
table = np.zeros((0, FEATURES), np.float32)


def learn(seed: int) -> None:
    global table
    rows = arguments.megabytes * 1_000_000 // (4 * FEATURES)
    table = np.random.default_rng(seed).standard_normal((rows, FEATURES), np.float32)


def predict(rows: Rows) -> Rows:
    scores: Rows = rows @ table[:2].T
    return scores


def export() -> ModelProto:
    nodes = [
        helper.make_node("Gather", ["table", "places"], ["picked"]),
        helper.make_node("Transpose", ["picked"], ["weights"]),
        helper.make_node("MatMul", ["input", "weights"], ["scores"]),
    ]
    taken = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["rows", FEATURES])
    given = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 2])
    places = numpy_helper.from_array(np.array([0, 1], np.int64), "places")
    graph = helper.make_graph(nodes, "weighty", [taken], [given], [numpy_helper.from_array(table, "table"), places])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def evaluate(predict: Predict) -> float:
    return stage / 10 + 0.5 if np.abs(predict(x) - x @ table[:2].T).max() < 1e-3 else 0.0


stage = 1
learn(stage)
job = tiercel.trainer.connect(export=export, predict=predict, example_input={"input": x[:1]}, evaluate=evaluate)
for _ in job.epochs(100_000):
    if (told := int(arguments.stage.read_text())) != stage:
        stage = told
        learn(stage)
    job.report(accuracy=evaluate(job.predict))
    time.sleep(0.2)
