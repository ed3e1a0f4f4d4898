"""Predictions of when tiers come, and what then came."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from tiercel.core.jsonable import Jsonable
from tiercel.core.what_if import Span


class PredictionState(enum.Enum):
    """What became of a prediction: the tier is still to come, came, or never came as its job ended before."""

    OPEN = "open"
    CAME = "came"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Prediction(Jsonable):
    """When a tier was predicted to be reached as things were, and when it was."""

    job_id: str
    tier: int  # its number
    policy: str  # that decided
    made_at: datetime  # seconds count from here
    told: Span
    drawn: Span  # what the futures gave, before it was corrected by how far off earlier predictions were
    tenant: str = ""  # whose job it is
    state: PredictionState = PredictionState.OPEN
    came_seconds: float | None = None  # when the tier was reached, or None


@dataclass(frozen=True, slots=True)
class Accuracy(Jsonable):
    """How far off predictions were under a policy.

    The error of one is (told - came) / came, of those that came 0.5 s after they were made or later.
    """

    policy: str
    came: int  # how many predictions came
    never: int  # how many tiers were predicted and never came
    median_error: float | None = None  # of the absolute errors; None while there are none, as all that follow
    first_quartile: float | None = None  # of the absolute errors
    third_quartile: float | None = None
    bias: float | None = None  # median of the errors; below 0 where tiers come later than was told
    in_band: float | None = None  # part of all that are settled that came within the outer tenths; 0.8 is right


@dataclass(frozen=True, slots=True)
class PredictionRecord(Jsonable):
    """What is recorded of predictions."""

    accuracy: tuple[Accuracy, ...] = ()  # by policy
    predictions: tuple[Prediction, ...] = ()  # the latest, the newest first
