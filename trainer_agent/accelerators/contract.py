"""What a way of seeing accelerators has to offer.

Seeing is all there is: nothing in this package changes a setting of an accelerator (clocks, compute mode, ECC, MIG).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class AcceleratorsUnavailableError(Exception):
    """This way of seeing accelerators does not work here; the message says why."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator, or a slice of one that its driver keeps apart (MIG)."""

    id: str  # as its driver calls it for good: ``GPU-...`` or, for a slice, ``MIG-...``
    name: str  # its make
    memory_bytes: int  # memory that programs can have, without what the driver keeps for itself


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one process uses of one accelerator."""

    memory_bytes: int = 0  # memory that it holds now, its CUDA context included; 0 where the driver does not say
    # Accelerator time that it took since the look before, an estimate from the driver's samples; None where the driver
    # takes none, as of slices.
    busy_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AcceleratorReading:
    """How an accelerator is doing."""

    accelerator_id: str  # the accelerator
    # Fraction of the driver's last sample period in which it computed; None where unknown.
    utilisation: float | None = None
    memory_utilisation: float | None = None  # the same of its memory being read or written
    memory_used_bytes: int = 0  # held by all processes, ours or not
    problem: str = ""  # why nothing new should be put on it, in plain words; empty while it is well
    # Who uses it, by pid. The pids are those of the pid namespace that the driver answers for: the machine's own, also
    # of processes in containers.
    processes: Mapping[int, ProcessUse] = field(default_factory=dict)


class Accelerators(Protocol):
    """A way of seeing accelerators.

    All of it may block for as long as the driver likes, for ever included: call it on a thread that nobody waits for
    (see :mod:`tiercel.trainer_agent.accelerators.watch`), one call at a time.
    """

    @property
    def listed(self) -> tuple[Accelerator, ...]:
        """Those that were there at first, in the order of the machine's bus; the same for as long as it lives."""

    def look(self) -> tuple[AcceleratorReading, ...]:
        """One reading of each accelerator, in their order.

        What is wrong with an accelerator, a driver that no longer answers included, is its reading's problem and no
        error.
        """

    def close(self) -> None:
        """Let go of the driver. Doing it twice is harmless."""
