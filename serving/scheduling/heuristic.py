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

Where workers are of several kinds, "the pool" is all of them, each with its own durations; those that are busy take
part in the choice from when they will be free. Where one of them is best the free ones are left idle: it is waited for,
if the busy ones can keep up alone. A free worker that would be late leaves a request to a busy one that would not. The
paper's servers are heterogeneous; that a server waits for another one is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tiercel.serving.scheduling.interface import Choice, Ended, Profile, View
from tiercel.serving.scheduling.waiting import RESERVE

_MARGIN = 0.1
# Of the arrival rate's estimate; chosen on random pools, where more of it lost about as much as it won.
_PLAN_MARGIN = 0.25
# Rows per second that stand for none.
_LEAST = 1e-9
# Nobody is waited for who is as good as one that is free.
_TIE = 1e-9


class HeuristicScheduler:
    """Fang-style heuristic; see the module's description."""

    def __init__(self) -> None:
        self._capacity: Capacity | None = None

    def decide(self, view: View) -> Choice | None:
        """See :meth:`Scheduler.decide`."""
        limit = (1.0 - RESERVE) * view.objective
        rate = max(view.rate, view.recent_rate)
        capacity = self._capacity
        if capacity is None or not capacity.is_of(view, limit):
            capacity = self._capacity = capacity_of(view, limit)
        planned = capacity.planned((1.0 + _PLAN_MARGIN) * rate)
        fastest_rate = capacity.rates[capacity.fastest]
        if (1.0 + _PLAN_MARGIN) * rate >= fastest_rate:
            return _largest(view, capacity, planned)
        best: Choice | None = None
        best_worth, best_wait = float("-inf"), 0.0
        for number in range(len(view.kinds)):
            for variant in range(len(capacity.rates)):
                after = capacity.rates[planned] if variant < planned else fastest_rate
                option = option_of(view, capacity, number, variant)
                batch = sufficient_batch(view, option, rate, after, limit)
                if batch is None:
                    continue
                worth = worth_of(view, option, batch, rate) - (_TIE if option.wait else 0.0)
                if worth > best_worth:
                    best, best_worth, best_wait = Choice(variant, batch, number), worth, option.wait
        if best is None:
            return _largest(view, capacity, capacity.fastest)
        return None if best_wait else best

    def ended(self, run: Ended) -> None:
        """Changes nothing."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool could do if it always ran one variant, in the largest batches that end in time."""

    profiles: tuple[tuple[Profile, ...], ...]  # by kind of worker and variant
    workers: tuple[int, ...]  # by kind
    limit: float  # seconds of delay that count as in time
    batches: tuple[tuple[int, ...], ...]  # by kind and variant
    rates: tuple[float, ...]  # rows per second of the pool, by variant
    fastest: int  # the variant with the highest of them
    in_time: tuple[bool, ...]  # by variant, whether a worker ends a run of a row in time

    def is_of(self, view: View, limit: float) -> bool:
        """Whether it holds for what is there now."""
        return (
            self.limit == limit
            and self.profiles == tuple([kind.profiles for kind in view.kinds])
            and self.workers == tuple([len(kind.busy) for kind in view.kinds])
        )

    def planned(self, need: float) -> int:
        """The variant that would earn most if it always ran, where so many rows arrive per second."""
        planned, most = 0, -1.0
        for index, (profile, rate, in_time) in enumerate(zip(self.profiles[0], self.rates, self.in_time, strict=True)):
            part = min(1.0, rate / need) if need > 0.0 else 1.0
            worth = profile.accuracy * part if in_time else 0.0
            if worth > most:
                planned, most = index, worth
        return planned


def capacity_of(view: View, limit: float) -> Capacity:
    """What the pool can do within so many seconds."""
    profiles = tuple(kind.profiles for kind in view.kinds)
    batches = tuple(tuple(each.largest_within(limit) for each in kind) for kind in profiles)
    workers = tuple(len(kind.busy) for kind in view.kinds)
    variants = range(len(view.variants))
    rates = [
        sum(
            count * kind[index].capacity(batch[index])
            for count, kind, batch in zip(workers, profiles, batches, strict=True)
        )
        for index in variants
    ]
    in_time = tuple(any(kind[index].seconds[0] <= limit for kind in profiles) for index in variants)
    fastest = max(variants, key=lambda index: (rates[index], index))
    return Capacity(profiles, workers, limit, batches, tuple(rates), fastest, in_time)


def _largest(view: View, capacity: Capacity, variant: int) -> Choice | None:
    """The largest batch of a variant that ends in time, on a free worker; None where only another one is in time."""
    number = view.quickest_idle(variant)
    left = capacity.limit - view.oldest
    if len(view.kinds) > 1 and view.kinds[number].profiles[variant].seconds[0] > left:
        for kind in view.kinds:
            if min(kind.busy) + kind.profiles[variant].seconds[0] <= left:
                return None
    return Choice(variant, capacity.batches[number][variant], number)


class Option(NamedTuple):
    """A variant on a kind of worker."""

    profile: Profile  # of the variant there
    wait: float  # seconds until the first worker of the kind is free
    # As how many workers of the kind all that there are count, and those that are free; free ones are left idle and
    # count for nothing where another one is waited for.
    workers: float
    idle: float
    part: float  # of the pool's capacity that these workers are


def option_of(view: View, capacity: Capacity, number: int, variant: int) -> Option:
    """A variant on a kind of worker; workers of other kinds count by how fast they run a row of it."""
    kind = view.kinds[number]
    profile = kind.profiles[variant]
    if len(view.kinds) == 1:
        return Option(profile, 0.0, capacity.workers[0], kind.idle, 1.0)
    speeds = [profile.seconds[0] / each[variant].seconds[0] for each in capacity.profiles]
    workers = sum([count * speed for count, speed in zip(capacity.workers, speeds, strict=True)])
    idle = sum([each.idle * speed for each, speed in zip(view.kinds, speeds, strict=True)])
    wait = min(kind.busy)
    return (
        Option(profile, wait, workers - idle, 0.0, 1.0 - idle / workers)
        if wait
        else Option(profile, 0.0, workers, idle, 1.0)
    )


def sufficient_batch(view: View, option: Option, rate: float, after: float, limit: float) -> int | None:
    """The smallest batch with which a variant keeps up and is in time, or None.

    Args:
        view: What is known.
        option: The variant and the worker.
        rate: Rows that arrive per second.
        after: Rows per second of the pool with what would follow.
        limit: Seconds of delay that count as in time.
    """
    profile = option.profile
    share = min(view.count / option.idle, profile.max_batch) if option.idle else 0.0
    need = 0.0 if view.utility.is_flat else (1.0 + _MARGIN) * rate
    spare = max(after * option.part - rate, _LEAST)
    for batch, seconds in zip(profile.batches, profile.seconds, strict=True):
        if batch < share or option.workers * batch < need * seconds:
            continue
        taken = min(batch, view.count)
        end = option.wait + profile.seconds_for(taken)
        left = view.count - taken + rate * end
        return batch if view.oldest + end <= limit and end + left / spare <= limit else None
    return None


def worth_of(view: View, option: Option, batch: int, rate: float) -> float:
    """Mean utility of the answers of a run and of those to requests that have to wait for its end, at the worst."""
    profile = option.profile
    taken = min(batch, view.count)
    run = profile.seconds_for(taken)
    meanwhile = rate * run / option.workers
    now = view.utility.value(profile.accuracy, view.oldest + option.wait + run, view.objective)
    then = view.utility.value(profile.accuracy, 2.0 * run, view.objective)
    return (taken * now + meanwhile * then) / (taken + meanwhile)
