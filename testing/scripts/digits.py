"""A training script for tests: a perceptron on scikit-learn's digits, as the shipped workload, for less CPU time.

An optimizer of torch.optim imports PyTorch's compiler at its first step: longer than all that happens here.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import tiercel.trainer
from tiercel.trainer import Predict
from tiercel.trainer_agent.workloads.data import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--step-sleep-seconds", type=float, default=0.005)
arguments = parser.parse_args()

BATCH_ROWS = 64
torch.manual_seed(0)
images = load_digits()
x, y = torch.from_numpy(images.x_train), torch.from_numpy(images.y_train)
width = arguments.width
model = nn.Sequential(
    nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
)


def evaluate(predict: Predict) -> float:
    scores: npt.NDArray[np.float32] = predict(images.x_test)
    return float((scores.argmax(axis=1) == images.y_test).mean())


job = tiercel.trainer.connect(model, example_input=images.x_test[:1], evaluate=evaluate)
for _ in job.epochs(arguments.epochs):
    model.train()
    for rows in job.steps(torch.split(torch.randperm(len(x)), BATCH_ROWS)):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        with torch.no_grad():
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            for weights, gradient in zip(model.parameters(), gradients, strict=True):
                weights.sub_(arguments.learning_rate * gradient)
        time.sleep(arguments.step_sleep_seconds)  # a script that waits for its data
    job.report(accuracy=evaluate(job.predict))
