"""Whether a version may come beside what is on the accelerator, by a budget of bytes. Pure.

A swap loads before it unloads, so for a while both versions take memory. The budget says how much that may be: the new
version comes beside the old one if both fit, else after the old one has moved to the CPU where that was allowed, else
not at all.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

# What a session takes beside its weights, however small it is: workspaces of cuBLAS and cuDNN.
_LEAST_BYTES = 64 * 1024**2
_MEBIBYTE = 1024**2


class Admission(enum.Enum):
    """How a version comes in."""

    BESIDE = "beside"
    AFTER_MOVING = "after moving the old version to the CPU"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """What was decided."""

    admission: Admission  # how it comes in
    limit: int = 0  # bytes that its arena may take; 0 for no limit
    reason: str = ""  # why it was refused, for whoever asked for it; empty if it was not


@dataclass(frozen=True, slots=True)
class Size:
    """What a version takes."""

    weights: int  # bytes of its initializers
    held: int = 0  # bytes of accelerator memory that it was measured to take; 0 if it was not


def estimate(weights: int, factor: float, old: Size | None = None) -> int:
    """Bytes that a version will take.

    Args:
        weights: Bytes of its initializers.
        factor: What to multiply them by when nothing is known: activations and workspaces come on top.
        old: The version before it, as measured: versions of one model mostly differ in what they have learned only.
    """
    if old is not None and old.held and old.weights:
        return max(int(old.held * weights / old.weights), weights)
    return int(weights * factor) + _LEAST_BYTES


def decide(budget: int, others: int, old: int, new: int, *, may_move: bool, model_limit: int = 0) -> AdmissionDecision:
    """How a version comes in.

    Args:
        budget: Bytes that all versions together may take; 0 for as much as there is.
        others: Bytes of all versions but the one that this one replaces.
        old: Bytes of that one; 0 if there is none, or it is on the CPU.
        new: Bytes that the version is expected to take.
        may_move: Whether the old one may go to the CPU meanwhile.
        model_limit: Bytes that one version may take at most; 0 for no such limit.
    """
    if model_limit and new > model_limit:
        return AdmissionDecision(
            Admission.REFUSED,
            reason=f"it needs about {_mib(new)} of accelerator memory, and one version may take {_mib(model_limit)}",
        )
    if not budget:
        return AdmissionDecision(Admission.BESIDE, model_limit)
    if others + old + new <= budget:
        return AdmissionDecision(Admission.BESIDE, _limit(budget - others - old, model_limit))
    if old and may_move and others + new <= budget:
        return AdmissionDecision(Admission.AFTER_MOVING, _limit(budget - others, model_limit))
    return AdmissionDecision(Admission.REFUSED, reason=_why(budget, others, old, new, may_move=may_move))


def _limit(room: int, model_limit: int) -> int:
    return min(room, model_limit) if model_limit else room


def _why(budget: int, others: int, old: int, new: int, *, may_move: bool) -> str:
    held = [f"{_mib(old)} of the version it replaces"] if old else []
    held += [f"{_mib(others)} of others"] if others else []
    beside = f" beside {' and '.join(held)}" if held else ""
    fits_alone = old and not may_move and others + new <= budget
    what = "; allow --swap-over-cpu, raise" if fits_alone else "; unload other models, raise"
    return (
        f"it needs about {_mib(new)}{beside}, and --accelerator-memory is {_mib(budget)}{what} --accelerator-memory, "
        "or have it run on the CPU"
    )


def _mib(size: int) -> str:
    return f"{-(-size // _MEBIBYTE)} MiB"


@dataclass(slots=True, eq=False)
class Holding:
    """Accelerator memory of one session."""

    size: int  # bytes that it counts for: an estimate until it was measured
    weights: int  # bytes of its initializers
    is_measured: bool = False  # whether ``size`` is what it took

    @property
    def known(self) -> Size:
        """What the next version can be estimated by."""
        return Size(self.weights, self.size if self.is_measured else 0)


class MemoryAccount:
    """Who holds how much of the accelerator's memory; used on the event loop only."""

    def __init__(self) -> None:
        self._holdings: set[Holding] = set()

    @property
    def held(self) -> int:
        """Bytes of all holdings."""
        return sum(each.size for each in self._holdings)

    def take(self, size: int, weights: int) -> Holding:
        """Hold ``size`` bytes from now on."""
        holding = Holding(size, weights)
        self._holdings.add(holding)
        return holding

    def settle(self, holding: Holding, measured: int, limit: int) -> None:
        """It took ``measured`` bytes; other programs on the device blur that, so it is kept within what is possible.

        Args:
            holding: Whose.
            measured: By how much the device's free memory fell.
            limit: Bytes that its arena may take; 0 for no limit.
        """
        size = max(measured, holding.weights)
        holding.size = min(size, limit) if limit else size
        holding.is_measured = True

    def release(self, holding: Holding) -> None:
        """It holds nothing any more; doing it twice is doing it once."""
        self._holdings.discard(holding)
