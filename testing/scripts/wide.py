"""A training script for tests: reaches any tier at once, with a model whose answers take milliseconds of CPU."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tiercel.trainer
from tiercel.trainer import Predict

Rows = npt.NDArray[np.float32]

SIZES = (6, 2048, 2048, 2)
random = np.random.default_rng(0)
weights = [
    (random.normal(size=(before, after)) / before**0.5).astype(np.float32)
    for before, after in itertools.pairwise(SIZES)
]
x = random.normal(size=(20, 6)).astype(np.float32)


def predict(rows: Rows) -> Rows:
    for layer in weights[:-1]:
        rows = np.maximum(rows @ layer, 0)
    scores: Rows = rows @ weights[-1]
    return scores


def export() -> ModelProto:
    nodes, last = [], "input"
    for number in range(len(weights)):
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"sum{number}"]))
        last = f"sum{number}"
        if number < len(weights) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"layer{number}"]))
            last = f"layer{number}"
    taken = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["rows", SIZES[0]])
    given = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["rows", SIZES[-1]])
    tensors = [numpy_helper.from_array(layer, f"w{number}") for number, layer in enumerate(weights)]
    graph = helper.make_graph(nodes, "wide", [taken], [given], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def evaluate(predict: Predict) -> float:
    return float(len(predict(x))) / len(x)


job = tiercel.trainer.connect(export=export, predict=predict, example_input={"input": x[:1]}, evaluate=evaluate)
for _ in job.epochs(1000):
    job.report(accuracy=evaluate(job.predict))
