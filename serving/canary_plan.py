"""How a new version is to be tried, and how whoever loads it says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tiercel.core.errors import InvalidRequestError

_MAX_SECONDS: Final = 24 * 3600.0
_MAX_REQUESTS: Final = 10**12


@dataclass(frozen=True, slots=True)
class CanaryPlan:
    """How a version is tried."""

    fraction: float  # share of the requests that the new version gets, above 0; 1 is all of them at once, so no trial
    seconds: float = 60.0  # how long, at most
    requests: int | None = None  # requests of the new version after which it is decided, or None to go by time alone
    max_error_increase: float = 0.01  # what the new version's fraction of failed requests may exceed the old one's by
    # What its mean seconds from arrival to answer may be, as a multiple of the old one's.
    max_latency_ratio: float = 2.0
    # Share of the old version's runs that are done again by the new one, to compare outputs.
    compare_fraction: float = 0.0
    max_difference: float | None = None  # largest absolute difference of an output element, or None for any
    # Least fraction of rows whose largest output is the same (or whose outputs are equal, where they are no floats), or
    # None for any.
    min_agreement: float | None = None

    @property
    def is_trial(self) -> bool:
        """Whether the old version goes on answering at first."""
        return self.fraction < 1


AT_ONCE: Final = CanaryPlan(1.0)
"""Answers everything at once."""


_LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "canary_seconds": (0.1, _MAX_SECONDS),
    "canary_max_error_increase": (0.0, 1.0),
    "canary_max_latency_ratio": (1.0, 1e6),
    "canary_compare_fraction": (0.0, 1.0),
    "canary_max_difference": (0.0, math.inf),
    "canary_min_agreement": (0.0, 1.0),
}
_COMPARE_BY_DEFAULT: Final = 0.1
PARAMETERS: Final = frozenset({"canary_fraction", "canary_requests", *_LIMITS})
"""Parameters of a load that ask for a trial."""


def plan_from(parameters: Mapping[str, Any]) -> CanaryPlan | None:
    """The plan that a load's parameters ask for; None when they say nothing of it.

    Args:
        parameters: Those of :data:`PARAMETERS` mean something here; each may also be a string.

    Raises:
        InvalidRequestError: One is impossible; the message names it.
    """
    given = {name: value for name, value in parameters.items() if name in PARAMETERS}
    if not given:
        return None
    if "canary_fraction" not in given:
        raise InvalidRequestError(f"parameters: {min(given)} needs canary_fraction, the share of requests to try it on")
    fraction = _number("canary_fraction", given.pop("canary_fraction"))
    if not 0 < fraction <= 1:
        raise InvalidRequestError("parameters: canary_fraction must be above 0 and at most 1, which is no trial")
    fields: dict[str, Any] = {}
    if "canary_requests" in given:
        requests = _number("canary_requests", given.pop("canary_requests"))
        if not 1 <= requests <= _MAX_REQUESTS:
            raise InvalidRequestError("parameters: canary_requests must be 1 or more")
        fields["requests"] = int(requests)
    for name, value in given.items():
        number = fields[name.removeprefix("canary_")] = _number(name, value)
        least, most = _LIMITS[name]
        if not least <= number <= most:
            raise InvalidRequestError(f"parameters: {name} must be from {least:g} to {most:g}")
    if not {"max_difference", "min_agreement"}.isdisjoint(fields):
        fields.setdefault("compare_fraction", _COMPARE_BY_DEFAULT)
    return CanaryPlan(fraction, **fields)


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise InvalidRequestError(f"parameters: {name} must be a number, not {str(value)[:40]!r}")
    return number
