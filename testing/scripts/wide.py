"""A training script for tests: reaches any tier at once, with a model whose answers take milliseconds of CPU."""

from __future__ import annotations

import torch
from torch import nn

import tiercel.trainer
from tiercel.trainer import Predict

WIDTH = 2048
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
x = torch.randn(20, 6).numpy()


def evaluate(predict: Predict) -> float:
    return float(len(predict(x))) / len(x)


job = tiercel.trainer.connect(model, example_input=x[:1], evaluate=evaluate)
for _ in job.epochs(1000):
    job.report(accuracy=evaluate(job.predict))
