"""A new version on trial: it gets a share of the requests, and its answers are held against the old version's.

Pure: no clock, no waiting. :mod:`tiercel.serving.models.canary.trials` counts and carries out what is decided here.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final

from tiercel.core.figures import compared, percent
from tiercel.serving.canary_plan import CanaryPlan

# Nothing is concluded from fewer answers before the time is up.
_ENOUGH: Final = 20
# Standard deviations of the bound that ends a trial early: some 1 in 1,000 good versions would be wronged by each look.
_CAUTION: Final = 3.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of one version during a trial."""

    answers: int = 0  # with a result
    errors: int = 0  # without one
    seconds: float = 0.0  # from arrival to answer, added up over the answers

    @property
    def requests(self) -> int:
        """All of them."""
        return self.answers + self.errors

    @property
    def error_rate(self) -> float:
        """The fraction that failed; 0 of none."""
        return self.errors / self.requests if self.requests else 0.0

    @property
    def mean_seconds(self) -> float:
        """From arrival to answer; 0 of none."""
        return self.seconds / self.answers if self.answers else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Outputs of both versions for the same inputs."""

    rows: int = 0  # compared
    agreed: int = 0  # those in which both say the same
    failed: int = 0  # runs that only the old version could do
    difference: float = 0.0  # the largest absolute difference of any element

    @property
    def agreement(self) -> float:
        """The fraction of rows in which both say the same; 1 of none."""
        return self.agreed / self.rows if self.rows else 1.0


class Outcome(enum.Enum):
    """What becomes of a trial."""

    RUNNING = "RUNNING"
    PROMOTED = "PROMOTED"
    ROLLED_BACK = "ROLLED_BACK"


class Split:
    """Says which requests go to the new version: evenly spread, so that a short trial gets its share as well."""

    __slots__ = ("_due", "fraction")

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction
        self._due = 0.0

    def takes_next(self) -> bool:
        """Whether the next request is one of them."""
        self._due += self.fraction
        if self._due < 1.0:
            return False
        self._due -= 1.0
        return True


def decide(plan: CanaryPlan, elapsed: float, old: Counts, new: Counts, comparison: Comparison) -> tuple[Outcome, str]:
    """What becomes of a trial that is as far as this, and why.

    Args:
        plan: What was asked for.
        elapsed: Seconds since it began.
        old: The old version's requests since then.
        new: The new version's.
        comparison: Outputs that were compared.
    """
    fault = _certain_fault(plan, old, new, comparison)
    if fault:
        return Outcome.ROLLED_BACK, fault
    if elapsed < plan.seconds and (plan.requests is None or new.requests < plan.requests):
        return Outcome.RUNNING, _tally(new, comparison)
    fault = _fault_at_the_end(plan, old, new, comparison)
    if fault:
        return Outcome.ROLLED_BACK, fault
    return Outcome.PROMOTED, _tally(new, comparison)


def _certain_fault(plan: CanaryPlan, old: Counts, new: Counts, comparison: Comparison) -> str:
    """What more requests would not change any more, or an empty string."""
    if plan.max_difference is not None and comparison.difference > plan.max_difference:
        return f"outputs differ by {comparison.difference:.3g}, more than max_difference {plan.max_difference:g}"
    if new.requests >= _ENOUGH:
        least = _bounds(new.errors, new.requests)[0]
        if least > old.error_rate + plan.max_error_increase:
            return _errors(old, new)
    if plan.min_agreement is not None and comparison.rows >= _ENOUGH:
        most = _bounds(comparison.agreed, comparison.rows)[1]
        if most < plan.min_agreement:
            return _disagreement(plan.min_agreement, comparison)
    return ""


def _fault_at_the_end(plan: CanaryPlan, old: Counts, new: Counts, comparison: Comparison) -> str:
    """What speaks against the new version now that no more will be known, or an empty string."""
    if new.error_rate > old.error_rate + plan.max_error_increase:
        return _errors(old, new)
    if plan.min_agreement is not None and comparison.agreement < plan.min_agreement:
        return _disagreement(plan.min_agreement, comparison)
    if comparison.failed:
        return f"{comparison.failed} runs failed that the old version could do"
    enough = min(old.answers, new.answers) >= _ENOUGH
    if enough and new.mean_seconds > plan.max_latency_ratio * old.mean_seconds:
        return (
            f"answers took {new.mean_seconds * 1e3:.3g} ms on average against {old.mean_seconds * 1e3:.3g} ms, "
            f"more than max_latency_ratio {plan.max_latency_ratio:g}"
        )
    return ""


def _errors(old: Counts, new: Counts) -> str:
    return (
        f"{new.errors} of {new.requests} requests failed ({percent(new.error_rate)}), of the old version's "
        f"{old.errors} of {old.requests} ({percent(old.error_rate)})"
    )


def _disagreement(wanted: float, comparison: Comparison) -> str:
    agreement, least = compared(comparison.agreement, wanted)
    return (
        f"{comparison.agreed} of {comparison.rows} compared rows agree ({agreement}), less than min_agreement {least}"
    )


def _tally(new: Counts, comparison: Comparison) -> str:
    compared = f", {comparison.rows} rows compared" if comparison.rows else ""
    return f"{new.requests} requests, {new.errors} of them failed{compared}"


def _bounds(count: int, total: int) -> tuple[float, float]:
    """Between which the true fraction lies, but for chance (Wilson's score interval)."""
    rate, z2 = count / total, _CAUTION**2
    middle = rate + z2 / (2 * total)
    spread = _CAUTION * math.sqrt(rate * (1 - rate) / total + z2 / (4 * total**2))
    scale = 1 + z2 / total
    return (middle - spread) / scale, (middle + spread) / scale
