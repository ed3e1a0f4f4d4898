"""What an answer is worth: accuracy, discounted by delay.

Fang et al. (CIKM 2017) schedule for "a utility function of response delay and inference accuracy" without giving its
form in reach; these three are our reconstruction ("Fang-style"). With accuracy A, delay d and the objective D:

* deadline: ``A`` if ``d <= D``, else 0
* soft: ``A * min(1, exp(-k (d - D) / D))``
* linear: ``A - k d / D``
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Form = Literal["deadline", "soft", "linear"]

FORMS: tuple[Form, ...] = ("deadline", "soft", "linear")
DEFAULT_STEEPNESS: dict[Form, float] = {"deadline": 1.0, "soft": 2.0, "linear": 0.5}
# Where the soft form has fallen to five hundredths, an answer counts as of no use.
_NEGLIGIBLE = 3.0


@dataclass(frozen=True, slots=True)
class Utility:
    """One utility function."""

    form: Form = "soft"  # ``deadline``, ``soft`` or ``linear``
    steepness: float = 2.0  # ``k`` of the formula, above 0; the deadline form has none

    @property
    def is_flat(self) -> bool:
        """Whether delay within the objective costs nothing."""
        return self.form != "linear"

    def value(self, accuracy: float, delay: float, objective: float) -> float:
        """The worth of one answer.

        Args:
            accuracy: Of the variant that gave it, a fraction.
            delay: Seconds from the request's arrival to the answer.
            objective: Seconds, above 0.
        """
        late = delay / objective
        if self.form == "deadline":
            return accuracy if late <= 1.0 else 0.0
        if self.form == "soft":
            return accuracy if late <= 1.0 else accuracy * math.exp(-self.steepness * (late - 1.0))
        return accuracy - self.steepness * late

    def values(self, accuracy: Floats | float, delay: Floats, objective: float) -> Floats:
        """The same for arrays, element by element; shapes are broadcast."""
        late = delay / objective
        if self.form == "deadline":
            worth = accuracy * (late <= 1.0)
        elif self.form == "soft":
            worth = accuracy * np.exp(np.minimum(0.0, -self.steepness * (late - 1.0)))
        else:
            worth = accuracy - self.steepness * late
        return np.asarray(worth)

    def useless_after(self, accuracy: float, objective: float) -> float:
        """Seconds of delay after which an answer of this accuracy is worth nothing, or next to nothing."""
        if self.form == "deadline":
            return objective
        if self.form == "soft":
            return objective * (1.0 + _NEGLIGIBLE / self.steepness)
        return objective * accuracy / self.steepness


def utility(form: Form, steepness: float | None = None) -> Utility:
    """A utility function by name, with its usual steepness unless another is given."""
    return Utility(form, DEFAULT_STEEPNESS[form] if steepness is None else steepness)
