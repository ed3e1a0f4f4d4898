"""Which trials of a sweep are not worth their time any more; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.core.jobs import Direction
from tiercel.core.tiers import TierState, TierStatus

REACHED = frozenset({TierState.REACHED, TierState.DELIVERED})


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving (ASHA, Li et al. 2020), in the variant that stops trials.

    Attributes:
        first_epoch: Epoch of the first rung, > 0.
        factor: Each rung has so many times the epochs of the one before, and one of so many trials passes it, > 1.
    """

    first_epoch: int = 3
    factor: int = 3


@dataclass(frozen=True, slots=True)
class Learned:
    """What a trial has reported.

    Attributes:
        best_by_epoch: Its best value up to each epoch of which it told, in their order.
        tiers: Its tiers, as the broker has them.
        over: Whether it has ended.
    """

    best_by_epoch: dict[int, float] = field(default_factory=dict)
    tiers: Sequence[TierStatus] = ()
    over: bool = False

    @property
    def epoch(self) -> int:
        """The last one that it reported, or 0."""
        return next(reversed(self.best_by_epoch), 0)

    def best_until(self, epoch: int) -> float | None:
        """Its best value by then, or None."""
        best = None
        for each, value in self.best_by_epoch.items():
            if each > epoch:
                break
            best = value
        return best


def trials_to_stop(trials: Mapping[int, Learned], direction: Direction, halving: Halving) -> dict[int, str]:
    """The running trials that are to be stopped, with the reason in plain words.

    Args:
        trials: All trials that have reported or run, by number.
        direction: Whether more is better.
        halving: Where the rungs are, and how many pass.
    """
    rungs = {number: _highest_rung(trial.epoch, halving) for number, trial in trials.items() if not trial.over}
    values = {rung: _values_at(rung, trials) for rung in set(rungs.values())}
    found: dict[int, str] = {}
    for number, rung in rungs.items():
        behind = _not_among_the_best(number, values[rung], direction, halving.factor)
        reason = _out_of_reach(number, trials) or (behind and f"at epoch {rung} {behind}")
        if reason:
            found[number] = reason
    return found


def _values_at(rung: int, trials: Mapping[int, Learned]) -> dict[int, float]:
    """The best values of all that have reached a rung; none for that before the first."""
    if rung == 0:
        return {}
    reached = {number: trial.best_until(rung) for number, trial in trials.items() if trial.epoch >= rung}
    return {number: value for number, value in reached.items() if value is not None}


def _out_of_reach(number: int, trials: Mapping[int, Learned]) -> str:
    """Whether the broker forecasts that it never reaches a tier that another one has reached."""
    reached = {
        tier.number for other, each in trials.items() if other != number for tier in each.tiers if tier.state in REACHED
    }
    for tier in trials[number].tiers:
        if tier.state is TierState.UNREACHABLE and tier.number in reached:
            return f"tier {tier.number} is forecast to be out of its reach, and another trial has reached it"
    return ""


def _not_among_the_best(number: int, values: Mapping[int, float], direction: Direction, factor: int) -> str:
    """Whether too many of those at its rung are better."""
    own = values.get(number)
    if own is None or len(values) < factor:
        return ""
    better = sum(value != own and direction.better(value, own) == value for value in values.values())
    passing = len(values) // factor
    return "" if better < passing else f"it was number {better + 1} of {len(values)}, and {passing} go on"


def _highest_rung(epoch: int, halving: Halving) -> int:
    rung = 0
    following = halving.first_epoch
    while following <= epoch:
        rung, following = following, following * halving.factor
    return rung
