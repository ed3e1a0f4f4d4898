"""From fractions of accelerator time to how long each run's work may be on the accelerator. Pure.

Two steps. First, who gets how much of the accelerator: everybody its fraction, and what somebody leaves unused goes to
who wants it. Second, what that means for somebody who is held back at its own step boundaries: work that is on the
accelerator together with others' gets only its turns there, so it has to be there for longer than its fraction.
Somebody who wants more than there is is not held back at all, so that the accelerator is never idle while it has
something to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tiercel.core.filling import fill

WANTS_ALL: Final = 1.0
"""Demand of a run that takes whatever it is given, or of which nothing is known yet."""

# A run whose work is on the accelerator for this part of what it may is taken to want more; the part of all time is
# larger, since steps of all lengths and the rests between them make what a held-back run does come in lumps.
_HUNGRY_PART: Final = 0.75
_HUNGRY_PART_OF_ALL: Final = 0.9
_HUNGRY_SLACK: Final = 0.03
# What a run may use beyond what it used, so that its growth shows.
_HEADROOM_PART: Final = 0.25
_LEAST_HEADROOM: Final = 0.05
_ROUNDS: Final = 64
_CLOSE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class AcceleratorClaim:
    """What a run asks of an accelerator."""

    fraction: float  # of the accelerator's time, under contention; in (0, 1]
    demand: float = WANTS_ALL  # of the accelerator's time, what it could use at most; in (0, 1]


def demand_of(active: float, limit: float, turns: float) -> float:
    """The fraction of accelerator time that a run could use, from what it did.

    Args:
        active: Fraction of the last seconds in which its work was on the accelerator.
        limit: What that was held to; 1 for no limit.
        turns: Part of that time in which the accelerator worked for it and not for others; see :func:`turns_of`.
    """
    part = _HUNGRY_PART if limit < 1.0 else _HUNGRY_PART_OF_ALL
    if active >= min(part * limit, limit - _HUNGRY_SLACK):
        return WANTS_ALL
    used = active * turns
    return min(used + max(_LEAST_HEADROOM, _HEADROOM_PART * used), WANTS_ALL)


def divide(claims: Mapping[str, AcceleratorClaim]) -> dict[str, float]:
    """Divide the time of an accelerator: weighted max-min fair by fractions, bounded by demands.

    What nobody wants is given out as well, by fractions, so that demands can grow.

    Returns:
        Fractions of accelerator time by run; their sum is 1, and nobody gets less than the smaller one of its fraction
        and its demand as long as the fractions add up to 1 at most.
    """
    if not claims:
        return {}
    fractions = [claim.fraction for claim in claims.values()]
    given = fill(fractions, [claim.demand for claim in claims.values()], 1.0)
    left, weight = max(1.0 - sum(given), 0.0), sum(fractions)
    return {
        name: min(part + left * fraction / weight, 1.0)
        for name, part, fraction in zip(claims, given, fractions, strict=True)
    }


def turns_of(others: Iterable[float]) -> float:
    """Which part of the time an accelerator works for a run whose work is there, while it gives equal turns to all.

    That is the mean of 1/(1 + K), K being how many others have work there, each independently of the rest: the integral
    from 0 to 1 of the probability generating function of K.

    Args:
        others: Fraction of time in which each other's work is on the accelerator.
    """
    coefficients = [1.0]  # of the generating function
    for active in others:
        shifted = [0.0, *coefficients]
        coefficients = [
            (1.0 - active) * stays + active * comes for stays, comes in zip([*coefficients, 0.0], shifted, strict=True)
        ]
    return sum(coefficient / (power + 1) for power, coefficient in enumerate(coefficients))


def active_limits(claims: Mapping[str, AcceleratorClaim]) -> dict[str, float]:
    """For which fraction of time each run's work may be on the accelerator, so that each gets what :func:`divide` says.

    Returns:
        Limits in (0, 1] by run; 1 for no limit: for a run alone, and for one of those whose demand is not met.
    """
    given = divide(claims)
    if len(given) == 1:
        return dict.fromkeys(given, 1.0)
    expected = {name: min(given[name], claims[name].demand) for name in given}
    unmet = [name for name in given if claims[name].demand > given[name] + _CLOSE]
    active = dict(expected)
    unlimited = max(unmet, key=lambda name: (given[name], name), default=None)
    if unlimited is not None:
        active[unlimited] = 1.0
    _settle(active, expected, {unlimited})
    return {name: min(active[name] * given[name] / expected[name], 1.0) for name in given}


def _settle(active: dict[str, float], expected: Mapping[str, float], fixed: set[str | None]) -> None:
    """Raise ``active`` until each gets ``expected`` of the accelerator: to the least fixed point, from below."""
    for _ in range(_ROUNDS):
        change = 0.0
        for name in active.keys() - fixed:
            others = (active[other] for other in active if other != name)
            new = min(expected[name] / turns_of(others), 1.0)
            change, active[name] = max(change, new - active[name]), new
        if change < _CLOSE:
            return
