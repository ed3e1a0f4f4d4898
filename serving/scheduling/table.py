"""A table solved beforehand: the choice as a semi-Markov decision process on a coarse state, by value iteration.

An honest and explainable rival of the learned policy, in the line of RAMSIS (EuroSys 2024; our reconstruction). The
state is how many rows wait and how old the oldest is; for each of a few arrival rates there is one table. What is
coarse about it: arrivals are Poisson, ages are spread evenly, several workers count as one that is free so many times
as often, and for each kind of worker the others count as like it.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, Choice, Ended, Profile, View
from tiercel.serving.scheduling.utility import Utility

Floats = npt.NDArray[np.float64]

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
AGES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
LOADS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1, 1.3)
# What comes after so many objectives counts 1/e of what comes at once.
_FORESIGHT = 30.0
_ITERATIONS = 150
# Requests that want some accuracy see fewer variants than others, and have a table of their own.
_REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class _Table:
    """What was solved."""

    capacity: float  # rows per second that all workers manage; loads are fractions of it
    settings: npt.NDArray[np.int64]  # by load, count and age; see solve

    def decision(self, view: View, kind: int) -> Choice:
        load = max(view.rate, 1e-9) / self.capacity
        level = min(range(len(LOADS)), key=lambda index: abs(math.log(LOADS[index] / load)))
        count = max(index for index, value in enumerate(COUNTS) if value <= view.count)
        age = min(range(len(AGES)), key=lambda index: abs(AGES[index] - view.oldest / view.objective))
        variant, batch = divmod(int(self.settings[level, count, age]), len(BATCHES))
        return Choice(variant, BATCHES[batch], kind)


class TableScheduler:
    """Looks decisions up; solves the table, about a second of CPU, when it sees variants for the first time.

    Args:
        solver: Where tables are solved, while the heuristic decides; None to solve them before the first decision, so
            that all decisions are the table's, as simulations want it.
    """

    def __init__(self, solver: Executor | None = None) -> None:
        self._solver = solver
        self._meanwhile = HeuristicScheduler()
        self._tables: dict[tuple[Any, ...], _Table | Future[_Table]] = {}

    def decide(self, view: View) -> Choice | None:
        """See :meth:`Scheduler.decide`."""
        kind = view.quickest_idle(0)
        table = self._table_for(view, kind)
        return self._meanwhile.decide(view) if table is None else table.decision(view, kind)

    def ended(self, run: Ended) -> None:
        """Changes nothing."""

    def _table_for(self, view: View, kind: int) -> _Table | None:
        """The table for workers of one kind; None while it is being solved."""
        profiles = view.kinds[kind].profiles
        workers = view.workers
        key = (tuple(profile.name for profile in profiles), view.objective, view.utility, workers, kind)
        found = self._tables.get(key)
        if found is None:
            if len(self._tables) >= _REMEMBERED:
                oldest = self._tables.pop(next(iter(self._tables)))
                if isinstance(oldest, Future):
                    oldest.cancel()
            work = partial(_solved, profiles, view.objective, view.utility, workers)
            found = self._tables[key] = work() if self._solver is None else self._solver.submit(work)
        if isinstance(found, Future):
            if not found.done():
                return None
            found = self._tables[key] = found.result()
        return found


def _solved(profiles: tuple[Profile, ...], objective: float, utility: Utility, workers: int) -> _Table:
    capacity = workers * max(profile.capacity(profile.largest_within(objective)) for profile in profiles)
    return _Table(capacity, np.stack([solve(profiles, objective, utility, workers, load * capacity) for load in LOADS]))


def solve(
    profiles: tuple[Profile, ...], objective: float, utility: Utility, workers: int, rate: float
) -> npt.NDArray[np.int64]:
    """The best setting in each state, as ``variant * len(BATCHES) + index of the batch``, by count and age.

    Args:
        profiles: The variants.
        objective: Seconds.
        utility: What an answer is worth.
        workers: Of the pool.
        rate: Poisson arrivals per second.
    """
    size = len(COUNTS) * len(AGES)
    settings = [(index, place) for index, profile in enumerate(profiles) for place in range(len(profile.seconds))]
    rewards = np.full((len(settings), size), -np.inf)
    discounts = np.zeros((len(settings), size))
    moves = np.zeros((len(settings), size, size))
    for number, (index, place) in enumerate(settings):
        profile, batch = profiles[index], BATCHES[place]
        for row, count in enumerate(COUNTS):
            if place and BATCHES[place - 1] >= count:
                continue  # the next smaller batch takes all there is
            taken = min(batch, count)
            run = profile.seconds_for(taken)
            for column, age in enumerate(AGES):
                state = row * len(AGES) + column
                ages = age * objective * (1.0 - np.arange(taken) / count)
                rewards[number, state] = utility.values(profile.accuracy, ages + run, objective).sum()
                discounts[number, state] = math.exp(-run / workers / (_FORESIGHT * objective))
                left_age = age * (1.0 - taken / count)
                moves[number, state] = _next(count - taken, left_age, run / workers, rate, objective)
    values = np.zeros(size)
    for _ in range(_ITERATIONS):
        worth = rewards + discounts * (moves @ values)
        values = worth.max(axis=0)
    best = worth.argmax(axis=0)
    codes = np.array([index * len(BATCHES) + place for index, place in settings], np.int64)
    table: npt.NDArray[np.int64] = codes[best].reshape(len(COUNTS), len(AGES))
    return table


def _next(left: int, left_age: float, seconds: float, rate: float, objective: float) -> Floats:
    """Probabilities of the states after ``seconds`` in which requests arrive at ``rate``."""
    result = np.zeros((len(COUNTS), len(AGES)))
    expected = rate * seconds
    most = int(expected + 4.0 * math.sqrt(expected) + 4.0)
    chance = math.exp(-expected) if expected < 700.0 else 0.0
    if not chance:  # so many that their number is as good as certain
        most, chance = int(expected), 1.0
        arrivals = [(most, chance)]
    else:
        arrivals = []
        for number in range(most + 1):
            arrivals.append((number, chance))
            chance *= expected / (number + 1)
    for number, probability in arrivals:
        # If nothing is left the oldest is the first of those that came, evenly spread.
        age = left_age + seconds / objective if left else seconds / objective * number / (number + 1)
        _spread(result, max(1, left + number), age, probability)
    flat: Floats = result.reshape(-1) / result.sum()
    return flat


def _spread(result: Floats, count: int, age: float, probability: float) -> None:
    """Add a probability to the states around a count and an age in objectives, in proportion to nearness."""
    for row, part in _around(COUNTS, float(count)):
        for column, share in _around(AGES, age):
            result[row, column] += probability * part * share


def _around(levels: tuple[float, ...], value: float) -> tuple[tuple[int, float], ...]:
    if value <= levels[0]:
        return ((0, 1.0),)
    if value >= levels[-1]:
        return ((len(levels) - 1, 1.0),)
    above = next(index for index, level in enumerate(levels) if level > value)
    share = (value - levels[above - 1]) / (levels[above] - levels[above - 1])
    return ((above - 1, 1.0 - share), (above, share))
