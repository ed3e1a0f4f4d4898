"""NVIDIA's Multi-Process Service, where the operator runs it: what a process is told when it starts.

MPS lets kernels of several processes run side by side instead of in turns. Its limits are the driver's: a part of the
device's multiprocessors, and of its memory. Both are fixed when a process starts. Nothing here starts, stops or sets up
MPS or a device. Source: https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.shares import AcceleratorShare

PIPE_DIRECTORY_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT_PIPE_DIRECTORY: Final = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's daemon puts it
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mps:
    """A control daemon that runs."""

    pipe_directory: Path  # where processes find it

    def environment(self, shares: Sequence[AcceleratorShare]) -> dict[str, str]:
        """Variables for a process that holds ``shares``, in the order in which it numbers them; none without any.

        There is one percentage for a process: that of its greatest fraction.
        """
        if not shares:
            return {}
        percentage = max(1, math.ceil(100 * max(share.fraction for share in shares)))
        variables = {
            PIPE_DIRECTORY_VARIABLE: str(self.pipe_directory),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(percentage, 100)),
        }
        limits = [f"{i}={share.memory_bytes // _MIB}M" for i, share in enumerate(shares) if share.memory_bytes >= _MIB]
        if limits:
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
        return variables


def find_mps(environment: Mapping[str, str], *, wanted: bool | None) -> Mps | None:
    """The control daemon, if the operator says that it runs, or else if its directory is there.

    Args:
        environment: Of the agent; may name the directory.
        wanted: What the operator says; None to look.
    """
    directory = Path(environment.get(PIPE_DIRECTORY_VARIABLE) or _DEFAULT_PIPE_DIRECTORY)
    runs = directory.is_dir() if wanted is None else wanted
    return Mps(directory) if runs else None
