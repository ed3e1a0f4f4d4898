"""The smallest batch and the most useful variant that keep up with what arrives (Fang et al., reconstructed).

The paper says that "a simple heuristic keeps response delay low while meeting the throughput requirement"; the rule
below is ours ("Fang-style"). A setting (variant, batch) will do when

* the request that waited longest is answered in time, that is within the objective less the reserve of
  :mod:`~tiercel.serving.scheduling.waiting`, which would else count it as late,
* what is left then, with what arrives meanwhile, is made up for in time by the fastest variant with the capacity that
  further arrivals leave; for variants more accurate than the plan, by the plan, so that accuracy now is not paid for
  with less later, and
* where delay within the objective costs something: the pool, if it always ran this setting, would keep up with the
  arrival rate and a tenth more. Where it costs nothing that test is left out, so that an accurate variant gets the time
  that a fast one leaves.

The plan is the one variant that would earn most if it always ran, at the present arrival rate and a quarter more: its
accuracy times the part of the requests that it can answer.

For each variant the smallest batch that will do is taken, since it has the lowest delay, but no less than a free
worker's share of what waits. Of these the variant is chosen whose answers are worth most, counting those to requests
that arrive during the run. When nothing will do the fastest runs the largest batch that ends in time; when more arrives
than that one can do, the plan does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiercel.serving.scheduling.interface import Choice, Ended, Profile, View
from tiercel.serving.scheduling.waiting import RESERVE

_MARGIN = 0.1
# Of the arrival rate's estimate; chosen on random pools, where more of it lost about as much as it won.
_PLAN_MARGIN = 0.25
# Rows per second that stand for none.
_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Plan:
    """What the pool could do if it always ran one setting."""

    planned: Choice  # the variant that earns most at the present rate, with the largest batch that ends in time
    planned_rate: float  # rows per second of the pool with it
    fastest: Choice  # the variant with the highest capacity, likewise
    fastest_rate: float  # rows per second of the pool with that one


class HeuristicScheduler:
    """Fang-style heuristic; see the module's description."""

    def __init__(self) -> None:
        self._profiles: tuple[Profile, ...] = ()
        self._limit = 0.0
        self._settings: tuple[tuple[int, float], ...] = ()

    def decide(self, view: View) -> Choice | None:
        """See :meth:`Scheduler.decide`."""
        limit = (1.0 - RESERVE) * view.objective
        rate = max(view.rate, view.recent_rate)
        plan = plan_for(view, self._settings_of(view, limit), (1.0 + _PLAN_MARGIN) * rate, limit)
        if (1.0 + _PLAN_MARGIN) * rate >= plan.fastest_rate:
            return plan.planned
        best, best_worth = plan.fastest, float("-inf")
        for index, profile in enumerate(view.profiles):
            after = plan.planned_rate if index < plan.planned.variant else plan.fastest_rate
            batch = sufficient_batch(view, profile, rate, after, limit)
            if batch is None:
                continue
            worth = worth_of(view, profile, batch, rate)
            if worth > best_worth:
                best, best_worth = Choice(index, batch), worth
        return best

    def ended(self, run: Ended) -> None:
        """Changes nothing."""

    def _settings_of(self, view: View, limit: float) -> tuple[tuple[int, float], ...]:
        """Each variant's largest batch that ends in time, and rows per second of one worker with it."""
        if self._profiles is not view.profiles or self._limit != limit:
            batches = [profile.largest_within(limit) for profile in view.profiles]
            self._settings = tuple(
                (batch, profile.capacity(batch)) for batch, profile in zip(batches, view.profiles, strict=True)
            )
            self._profiles, self._limit = view.profiles, limit
        return self._settings


def plan_for(view: View, settings: Sequence[tuple[int, float]], need: float, limit: float) -> Plan:
    """The plan.

    Args:
        view: What is known.
        settings: Each variant's batch, and rows per second of one worker with it.
        need: Rows per second that arrive, with a margin.
        limit: Seconds of delay that count as in time.
    """
    workers = len(view.busy)
    planned = fastest = 0
    most = -1.0
    for index, (profile, (_, capacity)) in enumerate(zip(view.profiles, settings, strict=True)):
        part = min(1.0, workers * capacity / need) if need > 0.0 else 1.0
        worth = profile.accuracy * part if profile.seconds[0] <= limit else 0.0
        if worth > most:
            planned, most = index, worth
        if capacity >= settings[fastest][1]:
            fastest = index
    return Plan(
        Choice(planned, settings[planned][0]),
        workers * settings[planned][1],
        Choice(fastest, settings[fastest][0]),
        workers * settings[fastest][1],
    )


def sufficient_batch(view: View, profile: Profile, rate: float, after: float, limit: float) -> int | None:
    """The smallest batch with which a variant keeps up and is in time, or None.

    Args:
        view: What is known.
        profile: Of the variant.
        rate: Rows that arrive per second.
        after: Rows per second of the pool with what would follow.
        limit: Seconds of delay that count as in time.
    """
    workers = len(view.busy)
    share = min(view.count / sum(seconds <= 0.0 for seconds in view.busy), profile.max_batch)
    need = 0.0 if view.utility.is_flat else (1.0 + _MARGIN) * rate
    for batch, seconds in zip(profile.batches, profile.seconds, strict=True):
        if batch < share or workers * batch < need * seconds:
            continue
        taken = min(batch, view.count)
        run = profile.seconds_for(taken)
        left = view.count - taken + rate * run
        spare = max(after - rate, _LEAST)
        return batch if view.oldest + run <= limit and run + left / spare <= limit else None
    return None


def worth_of(view: View, profile: Profile, batch: int, rate: float) -> float:
    """Mean utility of the answers of a run and of those to requests that have to wait for its end, at the worst."""
    taken = min(batch, view.count)
    run = profile.seconds_for(taken)
    meanwhile = rate * run / len(view.busy)
    now = view.utility.value(profile.accuracy, view.oldest + run, view.objective)
    then = view.utility.value(profile.accuracy, 2.0 * run, view.objective)
    return (taken * now + meanwhile * then) / (taken + meanwhile)
