"""The rule of DQoES on one node: classes by quality, and the limits of the next interval (Mao et al., 2020).

All CPU here is in fractions of the node. Pure numbers; :mod:`.dqoes` makes plans of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiercel.broker.scheduling.allocate import Claim, divide

# Nothing was answered although something arrived: held for this many objectives late, at the least.
_SILENT_LATENESS = 2.0
# Who uses less of its limit than this does not use it up.
_BOUND = 0.95
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


class DqoesDelay(enum.Enum):
    """What is compared with the objective: the mean delay, as published, or the 95th percentile of the last seconds.

    Where nobody measured the percentile, the mean stands in for it.
    """

    MEAN = "mean"
    P95 = "p95"


class DqoesMode(enum.Enum):
    """``LITERAL`` gives out what was taken and nothing else; ``CONSERVING`` gives out idle CPU as well."""

    CONSERVING = "conserving"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """How limits are moved."""

    alpha: float = 0.1  # a service is satisfied within this fraction of its objective, > 0
    beta: float = 0.1  # what the faster ones give up in one pass, as a fraction of what they use, in (0, 1)
    weights: DqoesWeight = DqoesWeight.RELATIVE  # how that is shared
    min_limit: float = 0.01  # no service is limited to less than this fraction of the node, in (0, 1)
    mode: DqoesMode = DqoesMode.CONSERVING  # whether idle CPU is given out
    delay: DqoesDelay = DqoesDelay.MEAN  # what is compared with the objective

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
    """What was measured of one service in the last interval."""

    name: str  # of the service
    objective: float  # seconds that an answer may take, > 0
    # Seconds that an answer took, in the mean or at a percentile, or None when something was asked and nothing
    # answered.
    delay: float | None
    used: float  # CPU that it really used, as a fraction of the node
    limit: float | None = None  # its limit so far, as a fraction of the node, or None

    @property
    def measured_delay(self) -> float:
        """The delay in seconds; that of a service which answers nothing is a guess that it is late."""
        return _SILENT_LATENESS * self.objective if self.delay is None else self.delay

    @property
    def lateness(self) -> float:
        """The delay over the objective."""
        return self.measured_delay / self.objective

    def loose_limit(self, idle: float) -> float:
        """Its limit; where it has none, what it could have used: as much again, but not more than what is ``idle``."""
        return self.used + min(self.used, idle) if self.limit is None else self.limit

    def is_loose(self, idle: float) -> bool:
        """Whether it leaves some of its limit unused."""
        return self.used < _BOUND * self.loose_limit(idle)

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
    passes (Mao et al., 2020). Ours, and left out with ``LITERAL``: idle CPU is given out, nobody is moved past its
    objective, and a service that does not use up its limit is steered by the headroom above its use.
    """
    groups = {kind: [s for s in services if classify(s, settings.alpha) is kind] for kind in QoeClass}
    if settings.mode is DqoesMode.LITERAL:
        given = _literal(groups, settings)
    else:
        given = _conserving(groups, settings, capacity)
    return _fitted(services, given, capacity, settings.min_limit)


def _literal(groups: Mapping[QoeClass, Sequence[Service]], settings: RuleSettings) -> dict[str, float]:
    faster, slower = groups[QoeClass.FASTER], groups[QoeClass.SLOWER]
    cuts = _portions(faster, settings.beta * sum(service.used for service in faster), settings)
    given = {service.name: max(service.used - cuts[service.name], settings.min_limit) for service in faster}
    freed = sum(service.used - given[service.name] for service in faster)
    gains = _portions(slower, max(freed, 0.0), settings)
    given |= {s.name: max(s.used, settings.min_limit) for s in groups[QoeClass.SATISFIED]}
    return given | {s.name: max(min(s.used + gains[s.name], 1.0), settings.min_limit) for s in slower}


def _portions(services: Sequence[Service], budget: float, settings: RuleSettings) -> dict[str, float]:
    """What each has of a budget by its weight."""
    total = sum(_weight(service, settings) for service in services) or 1.0
    return {service.name: _weight(service, settings) / total * budget for service in services}


def _conserving(
    groups: Mapping[QoeClass, Sequence[Service]], settings: RuleSettings, capacity: float
) -> dict[str, float]:
    idle = max(capacity - sum(service.used for group in groups.values() for service in group), 0.0)
    faster, slower = groups[QoeClass.FASTER], groups[QoeClass.SLOWER]
    # A satisfied one keeps its limit: where requests do not come all the time it needs more than it uses.
    given = {s.name: max(s.used, s.limit or 0.0, settings.min_limit) for s in groups[QoeClass.SATISFIED]}
    loose = {s.name: max(_steered(s, s.loose_limit(idle)), settings.min_limit) for s in faster if s.is_loose(idle)}
    given |= loose | _cut([service for service in faster if service.name not in loose], settings)
    base = {service.name: max(service.used, service.limit or 0.0) for service in slower}
    budget = capacity - sum(given.values()) - sum(base.values())
    claims = {
        service.name: Claim(_weight(service, settings), 0.0, max(_enough(service) - base[service.name], 0.0))
        for service in slower
    }
    gains = divide(claims, max(budget, 0.0))
    return given | {name: max(base[name] + gain, settings.min_limit) for name, gain in gains.items()}


def _weight(service: Service, settings: RuleSettings) -> float:
    relative = settings.weights is DqoesWeight.RELATIVE
    return min(abs(service.quality) / (service.objective if relative else 1.0), _LARGEST_RATIO)


def _cut(faster: Sequence[Service], settings: RuleSettings) -> dict[str, float]:
    """Limits of those that use up theirs and give, none past its objective."""
    budget = settings.beta * sum(service.used for service in faster)
    least = {service.name: max(_enough(service), settings.min_limit) for service in faster}
    claims = {
        service.name: Claim(_weight(service, settings), 0.0, max(service.used - least[service.name], 0.0))
        for service in faster
    }
    cuts = divide(claims, budget)
    return {service.name: max(service.used - cuts[service.name], settings.min_limit) for service in faster}


def _enough(service: Service) -> float:
    """The limit that should bring it to its objective; at most the node."""
    if service.limit is not None and service.used < _BOUND * service.limit:
        return min(_steered(service, service.limit), 1.0)
    # Its clients ask again as soon as they are answered: it is as fast as its limit is large.
    return min(service.used * min(service.lateness, _LARGEST_RATIO), 1.0)


def _steered(service: Service, limit: float) -> float:
    """The limit of one that does not use up its limit, since requests come by themselves."""
    # The mean delay of a queue goes like one over the headroom (M/G/1 with processor sharing: work over limit less
    # use), so the headroom is scaled by how late it is; by two at most, since queues take time.
    return service.used + (limit - service.used) * min(max(service.lateness, 0.5), 2.0)


def _fitted(
    services: Sequence[Service], given: Mapping[str, float], capacity: float, min_limit: float
) -> dict[str, float]:
    """What was promised beyond the capacity is taken back, from what nobody uses first."""
    # With less than it uses, a service whose requests come by themselves would fall behind further and further.
    least = min(min_limit, capacity / max(len(services), 1))
    floors = {service.name: min(given[service.name], max(service.used, least)) for service in services}
    if sum(floors.values()) > capacity:
        floors = {name: min(limit, least) for name, limit in given.items()}
    claims = {
        service.name: Claim(given[service.name], min(floors[service.name], 1.0), min(given[service.name], 1.0))
        for service in services
    }
    return divide(claims, capacity)
