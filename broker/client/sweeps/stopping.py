"""Which trials of a sweep are not worth their time any more; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.core.jobs import Direction
from tiercel.core.tiers import TierState, TierStatus

REACHED = frozenset({TierState.REACHED, TierState.DELIVERED})


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving (ASHA, Li et al. 2020), in the variant that stops trials."""

    first_epoch: int = 3  # epoch of the first rung, > 0
    # Each rung has so many times the epochs of the one before, and one of so many trials passes it, > 1.
    factor: int = 3

    def rungs(self, epoch: int) -> Iterator[int]:
        """The epochs of all rungs up to an epoch."""
        rung = self.first_epoch
        while rung <= epoch:
            yield rung
            rung *= self.factor


@dataclass(slots=True)
class Learned:
    """What a trial has reported, as far as others are compared with it: a value a rung, however long it trains."""

    at_rungs: dict[int, float] = field(default_factory=dict)  # its best value up to each rung that it has reached
    best: float | None = None  # its best value, or None
    epoch: int = 0  # the last one that it reported, or 0
    tiers: Sequence[TierStatus] = ()  # its tiers, as the broker has them
    over: bool = False  # whether it has ended

    def add(self, epoch: int, value: float, direction: Direction, halving: Halving) -> None:
        """Take in a report; a run that went on from an earlier checkpoint reports epochs again."""
        before = self.best
        self.best = value if before is None else direction.better(before, value)
        if epoch < self.epoch:
            return
        self.epoch = epoch
        for rung in halving.rungs(epoch):
            if rung == epoch:
                self.at_rungs[rung] = self.best
            elif before is not None:  # it told of no epoch just there
                self.at_rungs.setdefault(rung, before)


def trials_to_stop(trials: Mapping[int, Learned], direction: Direction, halving: Halving) -> dict[int, str]:
    """The running trials that are to be stopped, with the reason in plain words.

    Args:
        trials: All trials that have reported or run, by number.
        direction: Whether more is better.
        halving: Where the rungs are, and how many pass.
    """
    rungs = {number: max(halving.rungs(trial.epoch), default=0) for number, trial in trials.items() if not trial.over}
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
    return {number: trial.at_rungs[rung] for number, trial in trials.items() if rung in trial.at_rungs}


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
