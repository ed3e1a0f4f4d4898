"""How much there is to train and to ask, on an accelerator and on a CPU."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """How much there is to do in a step."""

    width: int  # channels of the first half of the network; the second half has twice as many
    batch_size: int  # rows of a batch
    repeats: int = 1  # batches whose gradients make one step of the optimizer
    seed: int = 0  # of the weights and of the order of the data; what there is to learn is always the same
    learning_rate: float = 0.01  # of the gradient descent

    def arguments(self) -> list[str]:
        """As the programs of this package take it on their command lines."""
        return [str(value) for value in astuple(self)]

    @classmethod
    def of(cls, arguments: list[str]) -> Workload:
        """What :meth:`arguments` made."""
        *counts, learning_rate = arguments
        width, batch_size, repeats, seed = map(int, counts)
        return cls(width, batch_size, repeats, seed, float(learning_rate))


ROOMY_BYTES = 24 << 30
"""A device with so much memory takes large batches of several trainings at once: 4 GiB each."""


def training_on(device: str, memory_bytes: int = 0) -> Workload:
    """A step that keeps an accelerator busy for longer than it takes to issue it; on a CPU some 10 ms.

    Wide batches of a narrow network: the product measures each delivered model again on one core.
    """
    if device == "cpu":
        return Workload(width=8, batch_size=32)
    # Gradients of so many rows have little noise, so that larger steps would be over too soon.
    return Workload(width=64, batch_size=4096 if memory_bytes >= ROOMY_BYTES else 1024, learning_rate=0.003)


@dataclass(frozen=True, slots=True)
class Asking:
    """What applications ask."""

    rate: float  # requests a second, evenly
    seconds: float  # for so long
    objective_seconds: float  # delay within which answers have to come


def asking_on(device: str, *, quick: bool) -> Asking:
    """A load that leaves an accelerator most of its time; on a CPU a little one."""
    seconds = 2.0 if quick else 12.0
    return Asking(100.0, seconds, 0.05) if device == "cuda" else Asking(20.0, seconds, 0.1)
