"""A training script for tests: learns a line in a few milliseconds an epoch, the same way every time."""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import tiercel.trainer
from tiercel.trainer import Predict

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--step-cpu-seconds", type=float, default=0.0)
parser.add_argument("--step-sleep-seconds", type=float, default=0.0)
parser.add_argument("--checkpoint-seconds", type=float, default=0.0)
parser.add_argument("--metric", default="accuracy")
parser.add_argument("--scale", type=float, default=1.0, help="100 for per cent")
parser.add_argument("--falls-short", type=int, default=0, help="so many exports show 1 less than was reported")
arguments = parser.parse_args()

torch.manual_seed(0)
np.random.seed(0)


class Momentum:
    """An optimizer with a state: one of torch.optim imports PyTorch's compiler, longer than all that happens here."""

    def __init__(self, weights: list[nn.Parameter], rate: float) -> None:
        self.weights = weights
        self.rate = rate
        self.speeds = [torch.zeros_like(each) for each in weights]

    @torch.no_grad()
    def step(self) -> None:
        for each, speed in zip(self.weights, self.speeds, strict=True):
            if each.grad is not None:
                speed.mul_(0.9).add_(each.grad)
                each.sub_(self.rate * speed)

    def zero_grad(self) -> None:
        for each in self.weights:
            each.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"speeds": [speed.clone() for speed in self.speeds]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        self.speeds = state_dict["speeds"]


model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
optimizer = Momentum(list(model.parameters()), 0.1)
x = torch.randn(400, 6)
y = (x.sum(1) > 0).long()
x_test, y_test = x[:100].numpy(), y[:100].numpy()
was_export: list[bool] = []


def evaluate(predict: Predict) -> float:
    answers: npt.NDArray[np.float32] = predict(x_test)
    np.random.random()  # an export measures again, and must not disturb who draws next
    value = float((answers.argmax(1) == y_test).mean() * arguments.scale)
    if not arguments.falls_short:
        return value
    was_export.append(predict != job.predict)
    if was_export[-1] and sum(was_export) <= arguments.falls_short:
        return value - 1.0
    return value + 1e-6 * len(was_export)  # however well it has learned, a later report is better


def burn(cpu_seconds: float) -> None:
    end = time.process_time() + cpu_seconds
    while time.process_time() < end:
        pass


job = tiercel.trainer.connect(
    model,
    example_input=x_test[:1],
    evaluate=evaluate,
    optimizer=optimizer,
    checkpoint_seconds=arguments.checkpoint_seconds,
)
for _ in job.epochs(arguments.epochs):
    model.train()
    order = torch.from_numpy(np.random.permutation(300) + 100)
    for rows in job.steps(torch.split(order, 300 // arguments.steps)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch left it without annotations
        optimizer.step()
        burn(arguments.step_cpu_seconds)
        time.sleep(arguments.step_sleep_seconds)  # a script that waits for its data
    job.report(**{arguments.metric: evaluate(job.predict)})

digest = hashlib.sha256()
for tensor in [*model.state_dict().values(), torch.get_rng_state(), *(p.grad for p in model.parameters())]:
    if tensor is not None:
        digest.update(tensor.numpy().tobytes())
print("mode", model.training, "state", digest.hexdigest())
