"""Takes more memory than it was granted: ``python -m benchmarks.gpu_check.memory_taker DEVICE LIMIT-BYTES``.

Prints what it was told when it got no more. The limit and the sentence are the trainer library's. On a CPU, whose
memory PyTorch does not limit, a stand-in refuses as PyTorch's CUDA allocator does, and everything else is the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from tiercel.trainer_agent.accelerators.detect import detect
from tiercel.trainer_agent.trainer.accelerator_memory import AcceleratorMemory, CudaMemory, MemoryLimits

BLOCKS = 16
"""The limit in blocks; twice as many are asked for."""

STAND_IN_BYTES = 16 << 30


class CpuStandIn:
    """See :class:`~tiercel.trainer_agent.trainer.accelerator_memory.AcceleratorMemory`; of a pretended accelerator."""

    def __init__(self) -> None:
        self._held = 0
        self._limit = STAND_IN_BYTES

    @property
    def is_used(self) -> bool:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_memory.AcceleratorMemory`."""
        return True

    @property
    def count(self) -> int:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_memory.AcceleratorMemory`."""
        return 1

    def total_bytes(self, index: int) -> int:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_memory.AcceleratorMemory`."""
        del index
        return STAND_IN_BYTES

    def held_bytes(self, index: int) -> int:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_memory.AcceleratorMemory`."""
        del index
        return self._held

    def limit(self, index: int, fraction: float) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_memory.AcceleratorMemory`."""
        del index
        self._limit = int(STAND_IN_BYTES * fraction)

    def take(self, size: int) -> None:
        """Raises what PyTorch raises when a device has no more."""
        if self._held + size > self._limit:
            raise torch.OutOfMemoryError(f"the stand-in holds {self._held} bytes and may hold {self._limit}")
        self._held += size


def take_all(device: torch.device, limit_bytes: int) -> dict[str, Any]:
    """Take block after block until there is an error, or twice the limit is held."""
    stand_in = CpuStandIn() if device.type == "cpu" else None
    memory: AcceleratorMemory = stand_in or CudaMemory()
    limits = MemoryLimits([limit_bytes], memory)
    size = limit_bytes // BLOCKS
    blocks: list[torch.Tensor] = []
    sentence, error = "", ""
    try:
        for _ in range(2 * BLOCKS):
            if stand_in is not None:
                stand_in.take(size)
            else:
                blocks.append(torch.zeros(size, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError as reason:
        sentence, error = limits.explain(reason), type(reason).__name__
    return {
        "limit_bytes": limit_bytes,
        "held_bytes": limits.held_bytes(),
        "driver_bytes": None if stand_in is not None else _held_by_driver(),
        "error": error,
        "sentence": sentence,
    }


def _held_by_driver() -> int | None:
    """Bytes that the driver says this process holds, its CUDA context included; None where it does not say."""
    found = detect()
    try:
        own = [reading.processes[os.getpid()] for reading in found.look() if os.getpid() in reading.processes]
    finally:
        found.close()
    return max((use.memory_bytes for use in own), default=0) or None


def main(arguments: Sequence[str]) -> None:
    """Take it and tell."""
    name, limit_bytes = arguments
    print(json.dumps(take_all(torch.device(name), int(limit_bytes))))


if __name__ == "__main__":
    main(sys.argv[1:])
