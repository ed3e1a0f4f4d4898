"""A training script for tests: learns a line in several ranks that train one model, the same way every time."""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed, nn

import tiercel.trainer
from tiercel.trainer import Predict

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--step-sleep-seconds", type=float, default=0.0)
parser.add_argument("--others-report", type=int, default=1, help="0: rank 0 alone calls report()")
parser.add_argument("--slow-rank", type=int, default=-1, help="a rank that comes late to everything")
arguments = parser.parse_args()

distributed.init_process_group("gloo")
rank, count = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(0)
layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
model = nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
x = torch.randn(400, 6)
y = (x.sum(1) > 0).long()
x_test, y_test = x[:100].numpy(), y[:100].numpy()
torch.manual_seed(rank)  # from here on each drops out what it draws by itself


def evaluate(predict: Predict) -> float:
    answers: npt.NDArray[np.float32] = predict(x_test)
    return float((answers.argmax(1) == y_test).mean())


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # at once, as the lines of several ranks may mix


def loiter() -> None:
    time.sleep(0.15 if rank == arguments.slow_rank else 0.0)  # a rank on a slower machine


loiter()
job = tiercel.trainer.connect(
    model, example_input=x_test[:1], evaluate=evaluate, optimizer=optimizer, checkpoint_seconds=0.0
)
say(f"rank {rank} of {count} is process {os.getpid()}, {torch.get_num_threads()} threads")
for _ in job.epochs(arguments.epochs):
    model.train()  # type: ignore[no-untyped-call]  # PyTorch left it without annotations
    for rows in job.steps(torch.split(torch.arange(100 + rank, 400, count), 50)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch left it without annotations
        optimizer.step()
        time.sleep(arguments.step_sleep_seconds)  # a script that waits for its data
        loiter()
    mean_loss = torch.tensor(loss.item())
    distributed.all_reduce(mean_loss)
    if rank == 0 or arguments.others_report:
        job.report(accuracy=evaluate(job.predict), loss=mean_loss.item() / count)
say(f"rank {rank} leaves, stopping: {job.is_stopping}")
distributed.destroy_process_group()
