"""A training script as the product runs it: ``WIDTH BATCH-SIZE REPEATS SEED LEARNING-RATE DEVICE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

import tiercel.trainer
from benchmarks.gpu_check.training import Training, held_out_images
from benchmarks.gpu_check.workloads import Workload
from tiercel.trainer import Predict

EPOCHS = 100
STEPS_PER_EPOCH = 10


def main(arguments: Sequence[str]) -> None:
    """Train until the last tier is reached, or for all epochs."""
    *workload, device = arguments
    training = Training(torch.device(device), Workload.of(workload))
    images, classes = (each.numpy() for each in held_out_images())

    def accuracy(predict: Predict) -> float:
        return float((predict(images).argmax(axis=1) == classes).mean())

    job = tiercel.trainer.connect(training.model, images[:1], accuracy, training.optimizer)
    for _ in job.epochs(EPOCHS):
        training.model.train()
        for _ in job.steps(range(STEPS_PER_EPOCH)):
            training.step()
        job.report(accuracy=accuracy(job.predict))


if __name__ == "__main__":
    main(sys.argv[1:])
