"""Which tiers a job has reached, and whether a model is the one to keep for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """What one report means for the tiers."""

    # Targets that no earlier report had reached, or only with a model that fell short, easiest first.
    reached: tuple[float, ...]
    is_best: bool  # whether the weights of this moment are the ones to keep for whoever asks for a model
    is_left_out: bool = False  # whether they would be, had they reached a target


class TierTracker:
    """Follows the reports of one metric.

    One copy of the weights is enough for all tiers: the best report so far that reached a tier which is still to be
    handed over. Whatever reaches a harder tier is better than what reached the easier ones.

    From ``keep_from`` on the best weights are kept in any case, as they may be wanted beyond the tiers.

    Args:
        smaller_is_better: Whether the metric is one to minimise.
        targets: Of the tiers not delivered yet, easiest first.
        keep_from: See above; None where nothing is wanted beyond the tiers.
    """

    def __init__(self, *, smaller_is_better: bool, targets: Iterable[float], keep_from: float | None = None) -> None:
        self._sign = -1.0 if smaller_is_better else 1.0
        self._keep_from = keep_from
        self._shipped_value: float | None = None
        self._targets = tuple(targets)
        self._handed_over: set[float] = set()
        self._fallen_short: dict[float, float | None] = {}  # by target, the report whose model missed it
        self._kept_value: float | None = None

    @property
    def kept_value(self) -> float | None:
        """The metric of the weights that are kept, or None while no tier was reached."""
        return self._kept_value

    @property
    def shipped_value(self) -> float | None:
        """The best metric of what was handed over, reported or measured again; None while nothing was."""
        return self._shipped_value

    @property
    def has_better(self) -> bool:
        """Whether the weights that are kept are better than all that was handed over, and may be wanted for that."""
        if self._keep_from is None or self._kept_value is None or self._shipped_value is None:
            return False
        return self._sign * self._kept_value > self._sign * self._shipped_value

    @property
    def handed_over(self) -> frozenset[float]:
        """Targets for which a model was handed over, or for which it was said that there is none."""
        return frozenset(self._handed_over)

    @property
    def expected(self) -> tuple[float, ...]:
        """Targets that were reached and whose model nobody has asked for yet.

        One that the kept weights fell short of is among them again when better ones are kept.
        """
        return tuple(
            target
            for target in self._open_targets()
            if self.has_reached(target) and self._fallen_short.get(target) != self._kept_value
        )

    def has_reached(self, target: float) -> bool:
        """Whether the weights that are kept reach ``target``."""
        return self._kept_value is not None and self._reaches(self._kept_value, target)

    def observe(self, value: float, *, only_if_reached: bool = False) -> Observation:
        """Take in a report. NaN reaches nothing.

        Args:
            value: What was reported.
            only_if_reached: Whether the weights are to be kept only if the report reaches a target.
        """
        before = self.expected
        improves = self._kept_value is None or self._sign * value > self._sign * self._kept_value
        floor = () if self._keep_from is None else (self._keep_from,)
        is_best = improves and any(self._reaches(value, target) for target in (*self._open_targets(), *floor))
        earlier = self._kept_value
        if is_best:
            self._kept_value = value
        reached = tuple(target for target in self.expected if target not in before)
        if is_best and only_if_reached and not reached:
            self._kept_value = earlier
            return Observation((), is_best=False, is_left_out=True)
        return Observation(reached, is_best)

    def mark_handed_over(self, target: float) -> None:
        """The request for this target was answered."""
        self._handed_over.add(target)

    def mark_shipped(self, value: float) -> None:
        """The kept weights were handed over, or found not to be worth it; ``value`` is what was measured of them."""
        values = [each for each in (value, self._kept_value, self._shipped_value) if each is not None]
        self._shipped_value = max(values, key=lambda each: self._sign * each)

    def mark_fallen_short(self, target: float) -> None:
        """The model of the kept weights misses this target, whatever was reported."""
        self._fallen_short[target] = self._kept_value

    def update_targets(self, targets: Iterable[float]) -> None:
        """Replace the tiers not delivered yet, as a new welcome lists them."""
        self._targets = tuple(targets)

    def restore(
        self, *, kept_value: float | None, handed_over: Iterable[float], shipped_value: float | None = None
    ) -> None:
        """Go on where an earlier run of the same job was."""
        self._kept_value, self._shipped_value = kept_value, shipped_value
        self._handed_over = set(handed_over)

    def falls_short(self, value: float, target: float, *, relative_tolerance: float) -> bool:
        """Whether ``value`` misses ``target`` by more than rounding explains. NaN falls short of everything."""
        return not self._sign * value >= self._sign * target - relative_tolerance * abs(target)

    def _open_targets(self) -> tuple[float, ...]:
        return tuple(target for target in self._targets if target not in self._handed_over)

    def _reaches(self, value: float, target: float) -> bool:
        return self._sign * value >= self._sign * target
