"""The best that a pool can do for one who knows all arrivals: exact, for a few requests; on one worker, some dozens.

Requests are taken in the order of their arrival or not at all, in batches of any size, with or without waiting; runs of
different workers may begin and end in any order. Dynamic programming over the first request that is left; for each,
only those pairs of (times at which the workers are free, utility so far) are kept of which no other is both earlier and
better, and which can still come to as much as somebody has earned.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence

import numpy as np

from testing.pool.simulation import Pool
from tiercel.serving.scheduling.utility import Floats

Free = tuple[tuple[float, ...], ...]
"""Times at which workers are free, sorted, by kind."""

_EXACT = 1e-12


def optimum(pool: Pool, arrivals: Sequence[float], max_batch: int = 16, at_least: float = 0.0) -> float:
    """The greatest utility, added up over the requests.

    Args:
        pool: Without jitter.
        arrivals: Sorted times, seconds.
        max_batch: No run has more rows.
        at_least: What somebody earned with these arrivals: less is not looked for.

    Raises:
        ValueError: The pool has jitter.
    """
    if pool.jitter:
        raise ValueError("the optimum is worked out without jitter")
    total = len(arrivals)
    reached: list[dict[Free, float]] = [{} for _ in range(total + 1)]
    reached[0][tuple(kind.busy for kind in pool.kinds)] = 0.0
    best = at_least
    for first in range(total):
        states = _with_nobody_before(reached[first], arrivals[first])
        left = np.array(arrivals[first:])
        for free, earned in _undominated(states):
            if earned + _most(pool, left, free) < best - _EXACT:
                continue
            for size, after, gain in _runs(pool, arrivals, first, max_batch, free):
                states = reached[first + size]
                states[after] = max(states.get(after, 0.0), earned + gain)
                best = max(best, earned + gain)
            states = reached[first + 1]
            states[free] = max(states.get(free, 0.0), earned)
        reached[first].clear()
    return best


def _most(pool: Pool, left: Floats, free: Free) -> float:
    """No less than what can still be earned: as if each request that is left had all workers to itself."""
    worth = np.zeros(len(left))
    for kind, times in zip(pool.kinds, free, strict=True):
        waits = np.maximum(times[0] - left, 0.0)
        for profile in kind.profiles:
            values = pool.utility.values(profile.accuracy, waits + profile.seconds[0], pool.objective)
            worth = np.maximum(worth, values)
    return float(worth.sum())


def _runs(
    pool: Pool, arrivals: Sequence[float], first: int, max_batch: int, free: Free
) -> Iterator[tuple[int, Free, float]]:
    """What may be run of the requests from ``first`` on: rows, when workers are free then, and what it earns."""
    for index, (kind, times) in enumerate(zip(pool.kinds, free, strict=True)):
        for worker, at in enumerate(times):
            if worker and at == times[worker - 1]:
                continue
            for profile in kind.profiles:
                for size in range(1, min(max_batch, profile.max_batch, len(arrivals) - first) + 1):
                    taken = arrivals[first : first + size]
                    end = max(at, taken[-1]) + profile.seconds_for(size)
                    gain = sum(pool.utility.value(profile.accuracy, end - each, pool.objective) for each in taken)
                    if gain > 0.0:
                        busy = tuple(sorted((*times[:worker], *times[worker + 1 :], end)))
                        yield size, (*free[:index], busy, *free[index + 1 :]), gain


def _with_nobody_before(states: dict[Free, float], now: float) -> dict[Free, float]:
    """Who is free before the next request comes may as well be free when it comes."""
    found: dict[Free, float] = {}
    for free, earned in states.items():
        later = tuple(tuple([max(now, at) for at in times]) for times in free)
        found[later] = max(found.get(later, 0.0), earned)
    return found


def _undominated(states: dict[Free, float]) -> list[tuple[Free, float]]:
    """Those of which no other has workers as early and earned as much, the best first."""
    ordered = sorted(states.items(), key=operator.itemgetter(1), reverse=True)
    times = np.array([sum(free, ()) for free, _ in ordered])
    kept = np.empty_like(times)
    found: list[tuple[Free, float]] = []
    for row, state in zip(times, ordered, strict=True):
        if not (kept[: len(found)] <= row).all(axis=1).any():
            kept[len(found)] = row
            found.append(state)
    return found
