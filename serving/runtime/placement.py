"""Where sessions of new versions go: which providers may run them, and whether the accelerator has room for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.runtime.admission import Admission, Holding, MemoryAccount, decide, estimate
from tiercel.serving.runtime.cuda import InstalledLibrary
from tiercel.serving.runtime.providers import CPU_ONLY, CudaOptions, Order
from tiercel.serving.runtime.sessions import Devices

MakeRoom = Callable[[], Awaitable[None]]
"""Moves the version that is replaced off the accelerator; returns once its memory is free. Raises TiercelError."""


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How much of the accelerator's memory versions may take."""

    budget: int = 0  # bytes that all of them together may take; 0 for as much as there is
    model_limit: int = 0  # bytes that one may take; 0 for no such limit
    factor: float = 3.0  # what a version takes as a multiple of its initializers, where no earlier version is known
    may_move: bool = False  # whether a version may go to the CPU while the one that replaces it is loaded


class NoRoomError(ArtefactRefusedError):
    """The accelerator has no room for a version, by the budget that was set."""


@dataclass(frozen=True, slots=True)
class Place:
    """Memory that a version may take."""

    holding: Holding  # what it is accounted for
    limit: int  # bytes that its arena may take; 0 for no limit


class AcceleratorMemory:
    """Lets versions onto the accelerator one after the other, so that what each took can be told; event loop only."""

    def __init__(self, options: MemoryOptions | None = None) -> None:
        self._options = options if options is not None else MemoryOptions()
        self._account = MemoryAccount()
        self._turn = asyncio.Lock()

    @property
    def held(self) -> int:
        """Bytes that all versions take, by estimate until they were measured."""
        return self._account.held

    @asynccontextmanager
    async def place(
        self,
        weights: int,
        replaced: Holding | None = None,
        make_room: MakeRoom | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Place]:
        """Have a place for a version while it is built; it stays unless the context ends with an error.

        Args:
            weights: Bytes of its initializers.
            replaced: What the version that it replaces holds; None if there is none, or it is on the CPU.
            make_room: How to move that one away, where it may be.
            limit: Bytes that it may take at most; None for what is set for all.

        Raises:
            NoRoomError: There is no room.
            TiercelError: What ``make_room`` raises.
        """
        options = self._options
        async with self._turn:
            old = replaced.size if replaced is not None else 0
            size = estimate(weights, options.factor, replaced.known if replaced is not None else None)
            may_move = options.may_move and make_room is not None
            others = self._account.held - old
            most = options.model_limit if limit is None else limit
            decision = decide(options.budget, others, old, size, may_move=may_move, model_limit=most)
            if decision.admission is Admission.REFUSED:
                raise NoRoomError(decision.reason)
            if decision.admission is Admission.AFTER_MOVING and make_room is not None:
                await make_room()
            holding = self._account.take(size, weights)
            try:
                yield Place(holding, decision.limit)
            except BaseException:
                self._account.release(holding)
                raise

    def settle(self, place: Place, measured: int) -> None:
        """A version was built and took ``measured`` bytes."""
        self._account.settle(place.holding, measured, place.limit)

    def release(self, holding: Holding) -> None:
        """A version is gone from the accelerator, or never got there."""
        self._account.release(holding)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where sessions go."""

    order: Order  # providers that the server may use
    devices: Devices  # opens sessions on them
    memory: AcceleratorMemory  # of the accelerator


def placement(order: Order, options: CudaOptions, memory: MemoryOptions) -> Placement:
    """Where sessions go on this machine."""
    return Placement(order, Devices(InstalledLibrary(), options), AcceleratorMemory(memory))


def on_the_cpu() -> Placement:
    """All sessions on the CPU."""
    return Placement(CPU_ONLY, Devices(InstalledLibrary()), AcceleratorMemory())
