"""What a workload may use of its node."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiercel.core.fields import NOT_TOLD


@dataclass(frozen=True, slots=True)
class AcceleratorShare:
    """What a workload may use of one accelerator.

    Which devices it holds, and how much memory there, is fixed while it runs; the fraction changes live.
    """

    id: str  # the device, as :class:`.nodes.Accelerator` has it
    fraction: float  # Fraction of the device's time under contention, in (0, 1]. What it leaves unused flows to others.
    memory_bytes: int = 0  # memory that it may hold there; 0 for all there is
    # Hard ceiling as a fraction of the device's time, or None. Keeps time free for answers beside it.
    cap: float | None = None


LEAST_SPEED = 1e-4
"""Part of its full speed that every run has, however small its weight: it still is a process."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a workload may use, and why."""

    cpu_weight: float  # Fraction of the node's CPU under contention, in (0, 1]. What it leaves unused flows to others.
    cpu_cap_cores: float | None = None  # Hard ceiling in cores, or None. Only for policies that ask for one.
    reason: str = ""  # why, in a sentence that a tenant can read
    # What it holds of the node's accelerators; empty for a job that cannot use any.
    accelerators: tuple[AcceleratorShare, ...] = ()
    # Part of its full speed that a job has with that at least, however many compete, in (0, 1].
    speed: float = field(default=1.0, metadata=NOT_TOLD)

    def same_limits(
        self, other: Share | None, *, tolerance: float = 0.0, accelerator_tolerance: float | None = None
    ) -> bool:
        """Whether ``other`` grants the same: an equal cap, the same devices, fractions that hardly differ.

        Args:
            other: What to compare with.
            tolerance: By how much the CPU's weight may differ, absolute.
            accelerator_tolerance: By how much each device's fraction may; as much as the CPU's weight when left out.
        """
        for_accelerators = tolerance if accelerator_tolerance is None else accelerator_tolerance
        return (
            other is not None
            and self.cpu_cap_cores == other.cpu_cap_cores
            and abs(self.cpu_weight - other.cpu_weight) <= tolerance
            and len(self.accelerators) == len(other.accelerators)
            and all(
                (mine.id, mine.memory_bytes, mine.cap) == (theirs.id, theirs.memory_bytes, theirs.cap)
                and abs(mine.fraction - theirs.fraction) <= for_accelerators
                for mine, theirs in zip(self.accelerators, other.accelerators, strict=True)
            )
        )
