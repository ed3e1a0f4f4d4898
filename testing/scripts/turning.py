"""A training script for tests: learns which side of a plane a point is on, in a world that its data set tells of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import tiercel.trainer
from tiercel.trainer import Predict

world = json.loads(Path(os.environ["TIERCEL_DATA_WORLD"]).read_text(encoding="utf-8"))
torch.manual_seed(0)
x = torch.randn(600, 6)
is_noise = torch.rand(600) < world["noise"]
y = ((world["turn"] * x.sum(1) > 0) ^ is_noise).long()
x_test, y_test = x[:200].numpy(), y[:200].numpy()
model = nn.Linear(6, 2)


def evaluate(predict: Predict) -> float:
    answers: npt.NDArray[np.float32] = predict(x_test)
    return float((answers.argmax(1) == y_test).mean())


job = tiercel.trainer.connect(model, example_input=x_test[:1], evaluate=evaluate)
for _ in job.epochs(8):
    for rows in job.steps(torch.split(torch.randperm(400) + 200, 50)):
        gradients = torch.autograd.grad(nn.functional.cross_entropy(model(x[rows]), y[rows]), list(model.parameters()))
        with torch.no_grad():
            for weights, gradient in zip(model.parameters(), gradients, strict=True):
                weights.sub_(0.5 * gradient)
    job.report(accuracy=evaluate(job.predict))
