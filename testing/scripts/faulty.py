"""Training scripts that go wrong, one fault each: ``python faulty.py FAULT``.

``crash`` raises after the first epoch. ``hang`` trains one epoch and then says nothing for ever. ``nan`` reports
accuracies of 0.5, then NaN. ``wrong-metric`` reports under a name that nobody asked for. ``unexportable`` uses an
operation that ONNX has not. ``random`` answers differently each time, so that no export can match it. ``lying``
reports better than its model is. ``uncopyable`` keeps something in the model that cannot be copied. ``out-of-memory``
asks for more of a made-up accelerator than it was granted. ``twice`` connects a second model. All
but ``hang`` end by themselves.
"""

from __future__ import annotations

import random
import sys
import threading

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import tiercel.trainer
from tiercel.trainer import Predict
from tiercel.trainer_agent.trainer import accelerators

fault = sys.argv[1]
torch.manual_seed(0)
x = torch.randn(200, 4)
y = (x.sum(1) > 0).long()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        if fault == "uncopyable":
            self.lock = threading.Lock()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(rows)
        # The faults, each in the place where a real script would have it.
        if fault == "unexportable":
            scores = scores + 0 * torch.linalg.svd(scores)[1].sum()
        if fault == "random":
            scores = scores * (1 + random.random())
        return scores


def evaluate(predict: Predict) -> float:
    scores: npt.NDArray[np.float32] = predict(x.numpy())
    return float((scores.argmax(1) == y.numpy()).mean())


class SmallAccelerator:
    """Stands in for the memory of a GPU."""

    is_used = True
    count = 1

    def total_bytes(self, index: int) -> int:
        return 1 << 36

    def held_bytes(self, index: int) -> int:
        return 1 << 30

    def limit(self, index: int, fraction: float) -> None:
        assert 0 < fraction < 1


if fault == "out-of-memory":
    vars(accelerators)["CudaMemory"] = SmallAccelerator
model = Model()
job = tiercel.trainer.connect(model, example_input=x[:1].abs(), evaluate=evaluate)
if fault == "twice":
    tiercel.trainer.connect(model, example_input=x[:1].abs(), evaluate=evaluate)
for epoch in job.epochs(4):
    loss = nn.functional.cross_entropy(model(x), y)
    with torch.no_grad():  # by hand: an optimizer of torch.optim imports PyTorch's compiler, which takes its time
        layer = model.layer
        for weights, gradient in zip(layer.parameters(), torch.autograd.grad(loss, [*layer.parameters()]), strict=True):
            weights.sub_(gradient)
    value = evaluate(job.predict)
    match fault:
        case "nan":
            job.report(accuracy=0.5 if epoch == 1 else float("nan"))
        case "wrong-metric":
            job.report(precision=value)
        case "lying":
            job.report(accuracy=0.99)
        case _:
            job.report(accuracy=value)
    if fault == "crash":
        message = "the training data is not what it should be"
        raise RuntimeError(message)
    if fault == "out-of-memory":
        message = "CUDA out of memory. Tried to allocate 20.00 GiB."
        raise torch.OutOfMemoryError(message)
    if fault == "hang":
        threading.Event().wait()
