"""What no scheduler can beat, or hardly: clairvoyant shortest remaining work first."""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Sequence

from tiercel.broker.simulation.result import Result

Task = tuple[float, float]
"""When it arrives, and how much work it is, both in seconds."""


def srpt_mean(tasks: Sequence[Task], machines: int) -> float:
    """Mean seconds from arrival to completion when the ``machines`` tasks with the least work left run.

    Clairvoyant, pre-emptive and free of cost. For one machine it is optimal (Schrage 1968). For several it is the
    reference of the issue's bar and no strict bound: with tasks that arrive over time it can be beaten by a little.
    """
    if not tasks:
        return math.nan
    running: list[tuple[float, float]] = []  # when it is done if it is left alone, when it arrived; sorted
    waiting: list[tuple[float, float]] = []  # work left, when it arrived; a heap
    total = 0.0
    for arrival, work in sorted(tasks):
        total += _finish_until(arrival, running, waiting)
        if len(running) < machines:
            insort(running, (arrival + work, arrival))
        elif running[-1][0] - arrival > work:
            done_at, arrived = running.pop()
            heapq.heappush(waiting, (done_at - arrival, arrived))
            insort(running, (arrival + work, arrival))
        else:
            heapq.heappush(waiting, (work, arrival))
    return (total + _finish_until(math.inf, running, waiting)) / len(tasks)


def _finish_until(until: float, running: list[tuple[float, float]], waiting: list[tuple[float, float]]) -> float:
    """Let time pass; returns the seconds from arrival to completion, summed over what is done by then."""
    total = 0.0
    while running and running[0][0] <= until:
        done_at, arrived = running.pop(0)
        total += done_at - arrived
        if waiting:
            work, waited_since = heapq.heappop(waiting)
            insort(running, (done_at + work, waited_since))
    return total


def pooled_mean(tasks: Sequence[Task], cores: float) -> float:
    """The same if all cores could work on one task together: a strict lower bound, and a loose one for one thread."""
    return srpt_mean([(arrival, work / cores) for arrival, work in tasks], 1)


def tier_tasks(result: Result, number: int) -> list[Task]:
    """Arrival and true work to tier ``number`` of the jobs of a result whose curve reaches it."""
    tasks = []
    for job in result.jobs:
        if number <= len(job.tiers):
            work = job.tiers[number - 1].true_work
            if work is not None:
                tasks.append((job.arrived_at, work))
    return tasks


def against_srpt(result: Result, number: int, cores: float) -> tuple[float, float]:
    """The mean time to tier ``number`` against clairvoyant SRPT: on as many machines as cores, and pooled.

    For jobs of one thread; both are at least about 1 when every tier was reached that could be.
    """
    tasks = tier_tasks(result, number)
    mean = result.mean_time_to_tier(number)
    return mean / srpt_mean(tasks, max(1, math.floor(cores))), mean / pooled_mean(tasks, cores)
