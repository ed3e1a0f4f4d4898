"""What the inference server gets of the node's accelerators: set aside before the broker is told what jobs may use.

So that a job is never placed into memory that models being served hold, and a swap never takes what a job was granted.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.accelerators.contract import Accelerator

USUAL_PART: Final = 8
"""One part of so many of the first accelerator's memory is for serving where nobody has said how much."""


@dataclass(frozen=True, slots=True)
class ServingReserve:
    """A part of one accelerator's memory; none where models are served on the CPU."""

    accelerator_id: str = ""  # the accelerator; empty for none
    memory_bytes: int = 0  # of its memory

    def left_of(self, accelerator: Accelerator) -> int:
        """Bytes of an accelerator's memory that are left for jobs."""
        return accelerator.memory_bytes - (self.memory_bytes if accelerator.id == self.accelerator_id else 0)

    def environment(self) -> dict[str, str]:
        """Settings of the server's process, which sees no other accelerator than its own."""
        if not self.accelerator_id:
            return {"CUDA_VISIBLE_DEVICES": "", "TIERCEL_SERVING_PROVIDERS": "cpu"}
        return {
            "CUDA_VISIBLE_DEVICES": self.accelerator_id,
            "TIERCEL_SERVING_ACCELERATOR_MEMORY": str(self.memory_bytes),
        }


def reserve(accelerators: Sequence[Accelerator], wanted_bytes: int | None, *, can_serve: bool) -> ServingReserve:
    """Set memory aside on the first accelerator.

    Args:
        accelerators: The node's, in their order.
        wanted_bytes: How much; 0 for none, None for the usual part where the server could use it.
        can_serve: Whether the server's libraries can use accelerators; see :func:`can_serve_on_accelerators`.

    Raises:
        SetupError: There is not so much.
    """
    if wanted_bytes is None:
        wanted_bytes = accelerators[0].memory_bytes // USUAL_PART if accelerators and can_serve else 0
    if not wanted_bytes:
        return ServingReserve()
    largest = accelerators[0].memory_bytes if accelerators else 0
    if wanted_bytes >= largest:
        has = f"the first accelerator has {largest} bytes" if accelerators else "the node has no accelerator"
        raise SetupError(
            f"The agent cannot set {wanted_bytes} bytes of accelerator memory aside for serving: {has}. "
            "Give --serving-accelerator-memory less, or 0 to serve on the CPU."
        )
    return ServingReserve(accelerators[0].id, wanted_bytes)


def can_serve_on_accelerators() -> bool:
    """Whether ONNX Runtime's build for CUDA is installed where the server will run, which is where the agent does."""
    try:
        importlib.metadata.version("onnxruntime-gpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
