"""Two ranks that train one model: ``python -m benchmarks.gpu_check.rank_pair DEVICE STEPS``, once a rank.

Its ranks are started as a run's are, and what each does about accelerators is what the trainer library does. Rank 0
prints what both found.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed, nn

from benchmarks.gpu_check.ranks import RANKS
from benchmarks.gpu_check.training import CLASSES, SIZE, build_model
from tiercel.trainer_agent.accelerators.detect import detect
from tiercel.trainer_agent.trainer.accelerators import Accelerators
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.v1 import common_pb2

_ROWS = 16
_MEMORY_BYTES = 4 << 30


def train(name: str, steps: int) -> list[dict[str, Any]]:
    """What all ranks found, by their numbers."""
    rank = Rank.of_process()
    (index,) = rank.devices(RANKS)
    device = torch.device(name, index) if name == "cuda" else torch.device(name)
    accelerators = Accelerators.of([common_pb2.AcceleratorShare(memory_bytes=_MEMORY_BYTES)] * RANKS, rank)
    if name == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if name == "cuda" else "gloo")
    torch.manual_seed(rank.number)  # they begin apart, and it is the wrapper that makes them one
    model = nn.parallel.DistributedDataParallel(build_model(16).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    began = time.monotonic()
    for _ in range(steps):
        with accelerators.counting():
            rows = torch.randn(_ROWS, 3, SIZE, SIZE, device=device)
            loss = nn.functional.cross_entropy(model(rows), torch.randint(CLASSES, (_ROWS,), device=device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # PyTorch left it without annotations
            optimizer.step()
    if name == "cuda":
        torch.cuda.synchronize()
    own = {
        "weights": sum(float(each.detach().double().abs().sum()) for each in model.parameters()),
        "device": str(device),
        "opened": _opened(),
        "busy_seconds": accelerators.reading().busy_seconds,
        "steps_per_second": steps / (time.monotonic() - began),
    }
    found: list[dict[str, Any]] = [{}] * RANKS
    distributed.all_gather_object(found, own)
    distributed.destroy_process_group()
    return found


def _opened() -> int | None:
    """On how many accelerators the driver sees this process; None where it does not say."""
    found = detect()
    try:
        readings = found.look()
        return sum(os.getpid() in reading.processes for reading in readings) if readings else None
    finally:
        found.close()


def main(arguments: Sequence[str]) -> None:
    """Be one of the ranks."""
    name, steps = arguments
    found = train(name, int(steps))
    if Rank.of_process().number == 0:
        print(json.dumps({"ranks": found, "steps_per_second": min(each["steps_per_second"] for each in found)}))


if __name__ == "__main__":
    main(sys.argv[1:])
