"""What a better version of an asked endpoint is worth to the applications that ask it.

A tier is worth what its tenant says, whether anybody asks or not. Where an endpoint is asked already, every answer in
time from a better version is worth more by what the version is better, from the moment on at which it is there. That
is counted for a window ahead and has the same currency as late answers: so many good ones are worth a tier of value 1.
Further tiers are discounted with it: nobody can ask yet for what has no version, and that must not count against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import EndpointView, JobView
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.jobs import Direction

# What is measured of requests differs by this part from one moment to the next.
_CHANCE = 0.1


@dataclass(frozen=True, slots=True)
class Traffic:
    """How an endpoint is asked."""

    answers: float  # answers in time that the next window will see, times its tenant's weight, in tiers of value 1
    quality: float  # metric of the live version where larger is better and 1 is perfect

    def is_about(self, other: Traffic) -> bool:
        """Whether another order of jobs could not be told from chance."""
        return self.quality == other.quality and abs(self.answers - other.answers) <= _CHANCE * max(other.answers, 1.0)

    def value_of(self, job: JobView, target: float) -> float:
        """What it is worth that the endpoint's version meets ``target`` for the window, as a tier's value; >= 0."""
        return self.answers * max(min(target, 1.0) - self.quality, 0.0) if job.direction is Direction.MAX else 0.0


def traffic_of(endpoints: Iterable[EndpointView], settings: UtilitySettings) -> Mapping[str, Traffic]:
    """How endpoints are asked whose version's metric is an accuracy, by name; others are left out."""
    found = {}
    for view in endpoints:
        if view.quality is not None and view.requests_per_second > 0:
            in_time = 1.0 if view.in_objective is None else view.in_objective
            answers = view.tenant_weight * view.requests_per_second * in_time * settings.window_seconds
            found[view.name] = Traffic(answers / settings.answers_per_value, view.quality)
    return found


def renewed(before: Mapping[str, Traffic], now: Mapping[str, Traffic]) -> tuple[Mapping[str, Traffic], frozenset[str]]:
    """What to go by: what was gone by before, as long as that is still about true.

    Returns:
        How endpoints are asked, and the names of those for which that has changed.
    """
    kept = {
        name: before[name] if name in before and before[name].is_about(each) else each for name, each in now.items()
    }
    changed = {name for name, each in kept.items() if before.get(name) is not each} | (before.keys() - kept.keys())
    return kept, frozenset(changed)
