"""How much memory of its accelerators a run may hold: a limit of PyTorch's allocator inside the process.

It keeps a script from taking more than it was granted by mistake, and so from taking what its neighbour was granted.
It is no isolation: a library that allocates on its own, or a script that lifts the limit, is not held back.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any, Final, Protocol

logger = logging.getLogger(__name__)

_MIB: Final = 1 << 20
# The driver's library and CUDA differ by a little about how much all is.
_ALL: Final = 0.98


CONTEXT_BYTES: Final = 512 * _MIB
"""What a process holds beside its tensors: its CUDA context and kernels; about so much on recent cards."""


class AcceleratorMemory(Protocol):
    """Memory of the accelerators of this process, by the numbers that PyTorch gives them."""

    @property
    def is_used(self) -> bool:
        """Whether the script uses PyTorch; of any other framework nothing is known or limited."""

    @property
    def count(self) -> int:
        """How many there are; 0 where there are none, or PyTorch cannot use them."""

    def total_bytes(self, index: int) -> int:
        """All memory of an accelerator."""

    def held_bytes(self, index: int) -> int:
        """What PyTorch holds of it now, in use or kept for later."""

    def limit(self, index: int, fraction: float) -> None:
        """Let PyTorch hold no more than that fraction of all, in (0, 1]."""


class CudaMemory:
    """Memory as PyTorch's CUDA allocator sees it; a script that has not imported PyTorch by now has none of it."""

    def __init__(self) -> None:
        self._torch: Any = sys.modules.get("torch")

    @property
    def is_used(self) -> bool:
        """See :class:`AcceleratorMemory`."""
        return self._torch is not None

    @property
    def count(self) -> int:
        """See :class:`AcceleratorMemory`."""
        return int(self._torch.cuda.device_count()) if self._torch and self._torch.cuda.is_available() else 0

    def total_bytes(self, index: int) -> int:
        """See :class:`AcceleratorMemory`."""
        return int(self._torch.cuda.get_device_properties(index).total_memory)

    def held_bytes(self, index: int) -> int:
        """See :class:`AcceleratorMemory`."""
        return int(self._torch.cuda.memory_reserved(index)) if self._torch.cuda.is_initialized() else 0

    def limit(self, index: int, fraction: float) -> None:
        """See :class:`AcceleratorMemory`."""
        self._torch.cuda.set_per_process_memory_fraction(fraction, index)


class MemoryLimits:
    """Holds a process to what it was granted. A share of all memory, or of none, means no limit.

    Args:
        granted: Bytes of each accelerator, in the order in which PyTorch numbers them.
        memory: Of these accelerators.
    """

    def __init__(self, granted: Sequence[int], memory: AcceleratorMemory) -> None:
        self._memory = memory
        self._limits: dict[int, int] = {}
        granted = granted if memory.is_used else ()
        # A run that holds none need not wake the driver to learn that there is none.
        self._count = min(len(granted), memory.count) if granted else 0
        if self._count < len(granted):
            logger.warning(
                "the job was granted %d accelerators, but PyTorch sees %d: see whether it was built for CUDA and fits "
                "the driver",
                len(granted),
                self._count,
            )
        for index, size in enumerate(granted[: self._count]):
            if 0 < size < _ALL * memory.total_bytes(index):
                self._limit(index, size)

    def held_bytes(self) -> int:
        """What the process holds of the accelerator on which it holds most."""
        return max(map(self._memory.held_bytes, range(self._count)), default=0)

    def explain(self, error: BaseException | None) -> str:
        """A sentence about the limit when it is what ``error`` is about; else empty."""
        if type(error).__name__ != "OutOfMemoryError" or not self._limits:
            return ""
        limits = ", ".join(f"{size / _MIB:,.0f} MiB of accelerator {index}" for index, size in self._limits.items())
        return (
            f"out of accelerator memory: this job may hold {limits}; submit it with more accelerator memory, or make "
            "its batches smaller"
        )

    def _limit(self, index: int, granted_bytes: int) -> None:
        try:
            self._memory.limit(index, _for_tensors(granted_bytes) / self._memory.total_bytes(index))
        except RuntimeError as error:  # not every allocator that a script can put in place has limits
            logger.warning("PyTorch sets no limit to the memory of accelerator %d: %s", index, error)
            return
        self._limits[index] = granted_bytes


def _for_tensors(granted_bytes: int) -> int:
    """What of a grant PyTorch may hold: the context comes out of it as well, or neighbours would run short."""
    return max(granted_bytes - CONTEXT_BYTES, granted_bytes // 2)
