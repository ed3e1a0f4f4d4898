"""The best that one worker can do when it knows all arrivals: exact, for a few dozen requests.

Requests are answered in the order of their arrival or not at all, in batches of any size, with or without waiting.
Dynamic programming over the first request that is left; for each, only those pairs of (time at which the worker is
free, utility so far) are kept of which no other is both earlier and better.
"""

from __future__ import annotations

from collections.abc import Sequence

from testing.pool.simulation import Pool

Pair = tuple[float, float]


def optimum(pool: Pool, arrivals: Sequence[float], max_batch: int = 16) -> float:
    """The greatest utility, added up over the requests.

    Raises:
        ValueError: The pool has several workers or jitter.
    """
    if pool.workers != 1 or pool.jitter:
        raise ValueError("the optimum is worked out for one worker without jitter")
    total = len(arrivals)
    reached: list[list[Pair]] = [[] for _ in range(total + 1)]
    reached[0].append((0.0, 0.0))
    for first in range(total):
        for free, earned in _undominated(reached[first]):
            reached[first + 1].append((free, earned))
            for profile in pool.profiles:
                for size in range(1, min(max_batch, profile.max_batch, total - first) + 1):
                    taken = arrivals[first : first + size]
                    end = max(free, taken[-1]) + profile.seconds_for(size)
                    gain = sum(pool.utility.value(profile.accuracy, end - at, pool.objective) for at in taken)
                    if gain > 0.0:
                        reached[first + size].append((end, earned + gain))
    return max(earned for _, earned in reached[total])


def _undominated(pairs: list[Pair]) -> list[Pair]:
    kept: list[Pair] = []
    for pair in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
        if not kept or pair[1] > kept[-1][1] + 1e-12:
            kept.append(pair)
    return kept
