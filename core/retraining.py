"""Training a model again by itself once what answers is less often right in use than was promised."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tiercel.core.tiers import Tier

DAY_SECONDS = 86_400.0
REPEATS_LABEL = "tiercel/repeats"
"""Label of a job that was started again from scratch: the id of the one that it repeats."""
RETRAINS_LABEL = "tiercel/retrains"
"""Label of a job that trains a model again: the number of the version that was too seldom right."""


@dataclass(frozen=True, slots=True)
class Retrain:
    """When a job is submitted again by the broker, and what that may cost.

    Attributes:
        budget_core_hours: What all retrainings of the endpoint that begin within a window may use: hours of cores, and
            of accelerators that they keep busy, added up.
        below: Accuracy in use, a fraction, that starts a retraining once all of its interval is below; None
            (``promise`` in a file) for what the version that answers promised.
        at_most: Retrainings of the endpoint that may begin within a window, 1 to 100.
        window_seconds: How long a window is.
    """

    budget_core_hours: float
    below: float | None = None
    at_most: int = 3
    window_seconds: float = DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Retrains:
    """What makes a job a retraining."""

    version: int  # the version that was too seldom right
    floor: float  # accuracy that its first tier asks for: what that version reached in use at best
    budget_seconds: float  # of cores and of accelerators: once its runs have used as much, its training ends
    tiers: tuple[Tier, ...] = field(default=())  # those of the job that it repeats, by which the next one is made


class RetrainingState(enum.Enum):
    """Where a retraining is."""

    DECIDED = "decided"
    UNDERWAY = "underway"
    REPLACED = "replaced"  # a version of it answers, and it is not known yet how often that is right
    HELPED = "helped"  # as often as it should be
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing happens to it any more."""
        return self not in {RetrainingState.DECIDED, RetrainingState.UNDERWAY}


@dataclass(frozen=True, slots=True)
class Retraining:
    """One time that the broker trained a model again; its endpoint remembers it."""

    job_id: str  # of the new job, which there may not be yet
    version: int  # the version that was too seldom right
    floor: float  # accuracy that it reached in use at best, 95 %
    decided_at: float  # seconds since the Unix epoch
    granted_seconds: float  # of cores and accelerators that it may use, set aside until it is over
    state: RetrainingState = RetrainingState.DECIDED
    used_seconds: float = 0.0  # of both, once it is over
    over_at: float = 0.0  # when that was, seconds since the Unix epoch

    @property
    def cost_seconds(self) -> float:
        """What it counts of the budget: what it used or, until it is over, all that it may use."""
        return self.used_seconds if self.state.is_over else self.granted_seconds


@dataclass(frozen=True, slots=True)
class Missed:
    """A version was found to be less often right in use than it should be, and has not been as good again since."""

    version: int
    accuracy: float  # what it should have reached
    high: float  # upper end of its interval in use, 95 %, when that was found
