"""What NVIDIA's driver says about an accelerator's health, in sentences for people. Pure.

What the numbers mean: https://docs.nvidia.com/deploy/xid-errors/ and https://docs.nvidia.com/deploy/gpu-debug-guidelines/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tiercel.trainer_agent.accelerators import nvml

XID_SECONDS: Final = 600.0
"""For how long an Xid counts: it tells of a moment. What lasts is told by the driver's other answers."""

_NO_INSTANCE: Final = 0xFFFFFFFF

_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a faulty or killed program brings about on a sound accelerator (illegal address, page fault, channel reset,
context switch timeout); the run ends with an error of its own."""

_XIDS: Final = {
    48: "memory error that could not be corrected",
    62: "halt of its controller",
    63: "memory row or page taken out of use",
    64: "memory row or page that could not be taken out of use",
    74: "NVLink error",
    79: "fallen off the bus",
    94: "memory error that ended a program",
    95: "memory error that reached beyond one program",
    119: "its firmware does not answer",
    120: "error of its firmware",
}

_RESET: Final = (
    "end what uses it, the agent and nvidia-persistenced included, and reset it (nvidia-smi --gpu-reset), or restart "
    "the machine"
)

_ACTIONS: Final = {
    1: f"The driver asks for a reset of the accelerator: {_RESET}.",
    2: "The driver asks for a restart of the machine.",
    3: "The driver asks to end what the accelerator does together with others (peer to peer).",
    4: f"The driver asks to put nothing more on the accelerator and then to reset it: {_RESET}.",
}

_FAULTS: Final = {
    nvml.GPU_IS_LOST: "The driver has lost the accelerator; it may have fallen off the bus: restart the machine.",
    nvml.RESET_REQUIRED: f"The accelerator works again only after a reset: {_RESET}.",
}


class Xids:
    """Remembers the driver's error events ("Xid") of each card."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, int], tuple[int, float]] = {}

    def note(self, card: str, instance: int, xid: int, now: float) -> None:
        """An event came; those that programs bring about do not count.

        Args:
            card: UUID of the card.
            instance: The slice's GPU instance, or 0xFFFFFFFF for all of the card.
            xid: What kind.
            now: Seconds of any clock that does not jump.
        """
        if xid not in _OF_PROGRAMS:
            self._latest[card, instance] = (xid, now)

    def problem(self, card: str, instance: int | None, now: float) -> str:
        """A sentence about the last event of a card or slice that still counts, or nothing."""
        latest = max(
            (
                (at, xid)
                for (of_card, of_instance), (xid, at) in self._latest.items()
                # A card that is one accelerator is concerned by whatever happens on it.
                if of_card == card and (instance is None or of_instance in {instance, _NO_INSTANCE})
            ),
            default=None,
        )
        if latest is None or now - latest[0] >= XID_SECONDS:
            return ""
        xid = latest[1]
        return f"The driver reported Xid {xid} ({_XIDS.get(xid, 'see its documentation')}) lately."


def uncorrected_errors(count: int) -> str:
    """A sentence about memory errors since the driver was loaded, or nothing."""
    if not count:
        return ""
    errors = "memory error was" if count == 1 else "memory errors were"
    return f"{count} {errors} found that could not be corrected since its driver was loaded: {_RESET}."


def remapping_failed(*, failed: bool) -> str:
    """A sentence about a card that has no spare memory rows left, or nothing."""
    return "A faulty row of its memory could not be replaced by a spare one: replace the card." if failed else ""


def recovery(action: int) -> str:
    """What the driver asks for (``nvmlDeviceGpuRecoveryAction_t``), or nothing."""
    return _ACTIONS.get(action, "The driver asks for a recovery: see nvidia-smi -q.") if action else ""


def fault(code: int, text: str) -> str:
    """An accelerator whose driver refuses to answer about it."""
    return _FAULTS.get(code, f"The driver does not answer about the accelerator ({text}): see nvidia-smi and its log.")


def gone(left_out: Sequence[str]) -> str:
    """An accelerator that the driver does not show any more."""
    told = f" ({'; '.join(left_out)})" if left_out else ""
    return (
        f"The driver does not show the accelerator any more{told}: see nvidia-smi, and whether its slices were changed."
    )
