"""Training a model again by itself once what answers is less often right in use than was promised."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tiercel.core.tiers import Tier

DAY_SECONDS = 86_400.0
REPEATS_LABEL = "tiercel/repeats"
"""Label of a job that was started again from scratch: the id of the one that it repeats."""
ACCURACY, INPUTS = "accuracy", "inputs"
"""What starts a retraining: a version is too seldom right, or what it is asked is something else than at first."""
RETRAINS_LABEL = "tiercel/retrains"
"""Label of a job that trains a model again: the number of the version that was too seldom right."""


@dataclass(frozen=True, slots=True)
class Retrain:
    """When a job is submitted again by the broker, and what that may cost.

    Attributes:
        budget_core_hours: What all retrainings of the endpoint that begin within a window may use: hours of cores, and
            of accelerators that they keep busy, added up.
        below: Accuracy in use, a fraction. A retraining starts when the whole interval is below it. None (``promise``
            in a file): what the live version promised.
        at_most: How many retrainings of the endpoint may begin within a window, 1 to 100.
        window_seconds: How long a window is.
        on: What starts one: :data:`ACCURACY`, :data:`INPUTS` or both; empty for the first.
    """

    budget_core_hours: float
    below: float | None = None
    at_most: int = 3
    window_seconds: float = DAY_SECONDS
    on: tuple[str, ...] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """What starts one."""
        return self.on or (ACCURACY,)


@dataclass(frozen=True, slots=True)
class Retrains:
    """What makes a job a retraining."""

    version: int  # the version that is to be replaced
    # Accuracy that its first tier asks for: what that version reached in use at best; 0 for none of its own.
    floor: float
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
    version: int  # the version that is to be replaced
    floor: float  # accuracy that it reached in use at best, 95 %; 0 where that is not what began it
    decided_at: float  # seconds since the Unix epoch
    granted_seconds: float  # of cores and accelerators that it may use, set aside until it is over
    state: RetrainingState = RetrainingState.DECIDED
    used_seconds: float = 0.0  # of both, once it is over
    over_at: float = 0.0  # when that was, seconds since the Unix epoch
    cause: str = ACCURACY  # what began it

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
