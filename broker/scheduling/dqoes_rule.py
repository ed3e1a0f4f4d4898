"""The rule of DQoES on one node: classes by quality, and the limits of the next interval (papers §4.2).

All CPU here is in fractions of the node. Pure numbers; :mod:`.dqoes` makes plans of them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.allocation import Claim, divide

# Nothing was answered although something arrived: held for this many objectives late, at the least.
_SILENT_LATENESS = 2.0
# Keeps sums finite; what is a million times too slow has no use for more.
_LARGEST_RATIO = 1e6


class QoeClass(enum.Enum):
    """How a service's delay compares with its objective."""

    FASTER = "G"
    SATISFIED = "S"
    SLOWER = "B"


class DqoesWeight(enum.Enum):
    """What the services of a class are weighted by.

    ``ABSOLUTE`` is the quality in seconds, as published; ``RELATIVE`` is the quality over the objective, which does not
    favour services that are slow and lax.
    """

    RELATIVE = "relative"
    ABSOLUTE = "absolute"


class DqoesMode(enum.Enum):
    """``LITERAL`` gives out what was taken and nothing else; ``CONSERVING`` gives out idle CPU as well."""

    CONSERVING = "conserving"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """How limits are moved.

    Attributes:
        alpha: A service is satisfied within this fraction of its objective, > 0.
        beta: What the faster ones give up in one pass, as a fraction of what they use, in (0, 1).
        weights: How that is shared.
        min_limit: No service is limited to less than this fraction of the node, in (0, 1).
        mode: Whether idle CPU is given out.
    """

    alpha: float = 0.1
    beta: float = 0.1
    weights: DqoesWeight = DqoesWeight.RELATIVE
    min_limit: float = 0.01
    mode: DqoesMode = DqoesMode.CONSERVING

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        if not self.alpha > 0:
            msg = "alpha must be above 0"
            raise ValueError(msg)
        if not (0 < self.beta < 1 and 0 < self.min_limit < 1):
            msg = "beta and min_limit must lie between 0 and 1"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Service:
    """What was measured of one service in the last interval.

    Attributes:
        name: Of the service.
        objective: Seconds that an answer may take, > 0.
        delay: Mean seconds that an answer took, or None when something was asked and nothing answered.
        used: CPU that it really used, as a fraction of the node.
        limit: Its limit so far, as a fraction of the node, or None.
    """

    name: str
    objective: float
    delay: float | None
    used: float
    limit: float | None = None

    @property
    def measured_delay(self) -> float:
        """The delay in seconds; that of a service which answers nothing is a guess that it is late."""
        return _SILENT_LATENESS * self.objective if self.delay is None else self.delay

    @property
    def quality(self) -> float:
        """Seconds by which it is faster than it needs to be; below 0 when it is slower."""
        return self.objective - self.measured_delay


def classify(service: Service, alpha: float) -> QoeClass:
    """Whether a service is faster than ``alpha`` allows for, slower, or neither."""
    if abs(service.quality) <= alpha * service.objective:
        return QoeClass.SATISFIED
    return QoeClass.FASTER if service.quality > 0 else QoeClass.SLOWER


def limits(services: Sequence[Service], settings: RuleSettings, capacity: float = 1.0) -> dict[str, float]:
    """The limits for the next interval, as fractions of the node, by name; they fit into ``capacity``.

    Limits start from real use, not from the old limit: one that never bound anything would blind the rule for many
    passes (papers §4.2). Idle CPU, and that nobody is moved past its objective, are our additions; with
    ``LITERAL`` they are left out.
    """
    groups = {kind: [s for s in services if classify(s, settings.alpha) is kind] for kind in QoeClass}
    given = _cut(groups[QoeClass.FASTER], settings)
    given |= {service.name: _frozen(service, settings) for service in groups[QoeClass.SATISFIED]}
    slower = groups[QoeClass.SLOWER]
    if settings.mode is DqoesMode.LITERAL:
        budget = sum(service.used - given[service.name] for service in groups[QoeClass.FASTER])
    else:
        budget = capacity - sum(given.values()) - sum(service.used for service in slower)
    given |= _raised(slower, max(budget, 0.0), settings)
    return _fitted({service.name: given[service.name] for service in services}, capacity, settings.min_limit)


def _weight(service: Service, settings: RuleSettings) -> float:
    relative = settings.weights is DqoesWeight.RELATIVE
    return min(abs(service.quality) / (service.objective if relative else 1.0), _LARGEST_RATIO)


def _enough(service: Service) -> float:
    """The limit that would bring it to its objective if delay went like one over the limit; at most the node."""
    return min(service.used * min(service.measured_delay / service.objective, _LARGEST_RATIO), 1.0)


def _cut(faster: Sequence[Service], settings: RuleSettings) -> dict[str, float]:
    """Limits of those that give."""
    budget = settings.beta * sum(service.used for service in faster)
    least = {
        service.name: settings.min_limit
        if settings.mode is DqoesMode.LITERAL
        else max(_enough(service), settings.min_limit)
        for service in faster
    }
    claims = {
        service.name: Claim(_weight(service, settings), 0.0, max(service.used - least[service.name], 0.0))
        for service in faster
    }
    if settings.mode is DqoesMode.LITERAL:
        total = sum(claim.weight for claim in claims.values()) or 1.0
        cuts = {name: min(claim.weight / total * budget, claim.ceiling) for name, claim in claims.items()}
    else:
        cuts = divide(claims, budget)
    return {service.name: max(service.used - cuts[service.name], settings.min_limit) for service in faster}


def _frozen(service: Service, settings: RuleSettings) -> float:
    """The limit of a satisfied one; where requests do not come all the time it needs more than it uses."""
    if settings.mode is DqoesMode.LITERAL or service.limit is None:
        return max(service.used, settings.min_limit)
    return max(service.used, service.limit, settings.min_limit)


def _raised(slower: Sequence[Service], budget: float, settings: RuleSettings) -> dict[str, float]:
    """Limits of those that are given ``budget`` together."""
    literal = settings.mode is DqoesMode.LITERAL
    claims = {
        service.name: Claim(
            _weight(service, settings), 0.0, max((1.0 if literal else _enough(service)) - service.used, 0.0)
        )
        for service in slower
    }
    if literal:
        total = sum(claim.weight for claim in claims.values()) or 1.0
        gains = {name: min(claim.weight / total * budget, claim.ceiling) for name, claim in claims.items()}
    else:
        gains = divide(claims, budget)
    return {service.name: max(service.used + gains[service.name], settings.min_limit) for service in slower}


def _fitted(given: dict[str, float], capacity: float, min_limit: float) -> dict[str, float]:
    """What was promised beyond the capacity, for instance to one that used none of its frozen limit, is taken back."""
    least = min(min_limit, capacity / max(len(given), 1))
    claims = {name: Claim(limit, min(limit, least), min(limit, 1.0)) for name, limit in given.items()}
    return divide(claims, capacity)
