"""A training script for tests: reports a metric that follows a made-up curve, a few milliseconds an epoch."""

from __future__ import annotations

import argparse
import time

import numpy as np

import tiercel.trainer
from tiercel.trainer import Predict

parser = argparse.ArgumentParser()
parser.add_argument("curve", choices=["rises", "flattens"], help="for ever by the same, or by ever less")
arguments = parser.parse_args()


def value(epoch: int) -> float:
    return 0.001 * epoch if arguments.curve == "rises" else 1.0 - 0.5**epoch


def evaluate(_: Predict) -> float:
    return 0.0  # no target is ever reached


def export() -> bytes:
    raise NotImplementedError("nobody asks for a model that reaches nothing")


job = tiercel.trainer.connect(
    export=export,
    predict=lambda rows: rows,
    example_input=np.zeros((1, 2), np.float32),
    evaluate=evaluate,
    checkpoint_seconds=1.0,
)
for epoch in job.epochs(100_000):
    for _ in job.steps(range(4)):
        time.sleep(0.02)  # a script that takes its time
    job.report(score=value(epoch))
