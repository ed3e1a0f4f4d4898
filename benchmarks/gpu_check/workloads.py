"""How much there is to train and to ask, on an accelerator and on a CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """How much there is to do in a step.

    Attributes:
        width: Channels of the first half of the network; the second half has twice as many.
        batch_size: Rows of a batch.
        repeats: Batches whose gradients make one step of the optimizer.
        seed: Of the weights and of the order of the data; what there is to learn is always the same.
    """

    width: int
    batch_size: int
    repeats: int = 1
    seed: int = 0

    def arguments(self) -> list[str]:
        """As the programs of this package take it on their command lines."""
        return [str(value) for value in (self.width, self.batch_size, self.repeats, self.seed)]

    @classmethod
    def of(cls, arguments: list[str]) -> Workload:
        """What :meth:`arguments` made."""
        return cls(*map(int, arguments))


def training_on(device: str) -> Workload:
    """A step that keeps an accelerator busy for longer than it takes to issue it; on a CPU some 10 ms."""
    return Workload(width=256, batch_size=1024) if device == "cuda" else Workload(width=8, batch_size=32)


@dataclass(frozen=True, slots=True)
class Asking:
    """What applications ask.

    Attributes:
        rate: Requests a second, evenly.
        seconds: For so long.
        objective_seconds: Delay within which answers have to come.
    """

    rate: float
    seconds: float
    objective_seconds: float


def asking_on(device: str, *, quick: bool) -> Asking:
    """A load that leaves an accelerator most of its time; on a CPU a little one."""
    seconds = 3.0 if quick else 12.0
    return Asking(100.0, seconds, 0.05) if device == "cuda" else Asking(20.0, seconds, 0.1)
