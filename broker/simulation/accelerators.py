"""How the accelerators of a node are divided among runs, and what a run that waits for one leaves of the CPU.

A run's work needs CPU and device time in a fixed mix and overlaps them: it goes on at the speed of whichever is scarcer
for it. What it then cannot use of the other flows to whoever can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiercel.core.filling import fill
from tiercel.core.shares import AcceleratorShare

# Less than this is a rounding error and nobody's bottleneck.
_NOTHING = 1e-9
_LEAST_FRACTION = 1e-9
_TURNS = 8


@dataclass(frozen=True, slots=True)
class AcceleratorUser:
    """A run that uses accelerators."""

    index: int  # its place among all who share the CPU
    intensity: float  # seconds of each of its devices that a CPU second of work takes, > 0
    devices: tuple[AcceleratorShare, ...]  # what it holds


def limited_by_accelerators(
    users: Sequence[AcceleratorUser], weights: Sequence[float], ceilings: Sequence[float], cores: float
) -> list[float]:
    """Cores that everybody can use at most, once accelerators are divided too.

    Device time is divided as cores are: by fractions, weighted max-min, work-conserving. Whoever is held up by a device
    can use fewer cores; what it leaves lets others go faster, who then want more of their own devices. So both are
    divided in turns, a bounded number of them; a ceiling only ever falls.

    Args:
        users: Runs that use accelerators.
        weights: Of all who share the CPU.
        ceilings: Cores that each could use if devices were endless.
        cores: What there is.
    """
    limits = list(ceilings)
    for _ in range(_TURNS + len(users)):
        given = fill(weights, limits, cores)
        fallen = False
        for user, rate in zip(users, _device_rates(users, given), strict=True):
            most = rate / user.intensity
            if most < given[user.index]:
                limits[user.index] = most
                fallen = fallen or most < given[user.index] - _NOTHING
        if not fallen:
            return limits
    # Turns get shorter without end where many devices hold each other up: nobody goes faster than it does by now.
    given = fill(weights, limits, cores)
    for user, rate in zip(users, _device_rates(users, given), strict=True):
        limits[user.index] = min(given[user.index], rate / user.intensity)
    return limits


def _device_rates(users: Sequence[AcceleratorUser], given: Sequence[float]) -> list[float]:
    """Device seconds per second that each user gets of the device that holds it up most."""
    wanted = [min(given[user.index] * user.intensity, 1.0) for user in users]
    on_device: dict[str, list[tuple[int, float]]] = {}
    for number, user in enumerate(users):
        for share in user.devices:
            on_device.setdefault(share.id, []).append((number, max(share.fraction, _LEAST_FRACTION)))
    rates = list(wanted)
    for holders in on_device.values():
        parts = fill([fraction for _, fraction in holders], [wanted[number] for number, _ in holders], 1.0)
        for (number, _), part in zip(holders, parts, strict=True):
            rates[number] = min(rates[number], part)
    return rates
