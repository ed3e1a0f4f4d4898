"""A line fitted by gradient descent: the smallest job that ships a model, with a parameter to choose."""

import argparse

import numpy as np
from onnx import TensorProto, helper

import tiercel.trainer

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=20)
options = parser.parse_args()

random = np.random.default_rng(0)
x = random.uniform(-1, 1, (256, 1)).astype(np.float32)
y = 3 * x + 1 + random.normal(0, 0.05, x.shape).astype(np.float32)
x_train, x_test, y_train, y_test = x[:192], x[192:], y[:192], y[192:]


def predict(rows):
    """What the ONNX file has to answer."""
    return (rows @ slope + offset).astype(np.float32)


def export():
    """The model as ONNX."""
    numbers = [
        helper.make_tensor("slope", TensorProto.FLOAT, [1, 1], slope.ravel()),
        helper.make_tensor("offset", TensorProto.FLOAT, [1], offset),
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "slope"], ["steep"]), helper.make_node("Add", ["steep", "offset"], ["y"])],
        "line",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 1])],
        numbers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def evaluate(predict):
    """Measures the model, and the ONNX file."""
    return float(np.sqrt(((predict(x_test) - y_test) ** 2).mean()))


slope, offset = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
job = tiercel.trainer.connect(
    export=export, predict=predict, example_input=x_test[:1], evaluate=evaluate, save=lambda: (slope, offset)
)
slope, offset = job.restored((slope, offset))  # of an earlier run of the job
for _ in job.epochs(options.epochs):
    error = predict(x_train) - y_train
    slope = slope - options.learning_rate * x_train.T @ error / len(error)
    offset = offset - options.learning_rate * error.mean(axis=0)
    job.report(rmse=evaluate(predict), error=float(np.abs(error).max()))
