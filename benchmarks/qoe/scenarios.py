"""Pools and arrivals for training: random, so that the policy learns no variants, loads or machine by heart."""

from __future__ import annotations

import random
from collections.abc import Sequence

from testing.pool.arrivals import SHAPES, arrivals
from testing.pool.simulation import Pool, alike
from tiercel.serving.scheduling.interface import BATCHES, Profile, WorkerKind
from tiercel.serving.scheduling.utility import FORMS, utility

WORKERS = 4
"""In a pool with several kinds of them, at most."""

JITTER = 0.1
"""How much runs of real models vary: standard deviation of the logarithm of their duration."""


def random_profiles(rng: random.Random, count: int) -> tuple[Profile, ...]:
    """So many variants whose cost falls faster than their accuracy, the slowest taking a second for a row."""
    accuracy = rng.uniform(0.75, 0.99)
    cost = 1.0
    profiles: list[Profile] = []
    for index in range(count):
        fixed = rng.choice((0.05, 0.2, 0.5, 0.8)) * rng.uniform(0.5, 1.2)
        bend = rng.uniform(0.9, 1.1)
        seconds = [cost * (fixed + (1.0 - fixed) * batch**bend) for batch in BATCHES[: rng.choice((5, 6, 7, 7, 7))]]
        rising = [max(seconds[: end + 1]) for end in range(len(seconds))]
        profiles.append(Profile(f"v{index}", accuracy, tuple(rising)))
        accuracy *= rng.uniform(0.75, 0.98)
        cost /= rng.uniform(1.5, 6.0)
    return tuple(profiles)


def scaled(profiles: Sequence[Profile], rng: random.Random) -> tuple[Profile, ...]:
    """The same variants, each a little faster or slower."""
    return tuple(
        Profile(profile.name, profile.accuracy, tuple(each * factor for each in profile.seconds))
        for profile in profiles
        for factor in (rng.uniform(0.7, 1.4),)
    )


def random_pool(rng: random.Random, measured: tuple[Profile, ...] | None = None) -> Pool:
    """A pool that a request can be answered by in time.

    Args:
        rng: The source of chance.
        measured: Profiles of real models, of which a third of the pools are variations.
    """
    if measured is not None and rng.random() < 1 / 3:
        profiles = scaled(measured, rng)
    else:
        profiles = random_profiles(rng, rng.choice((2, 3, 3, 3, 4)))
    slow, fast = profiles[0].seconds[0], profiles[-1].seconds[0]
    low, high = max(3.0 * fast, 0.8 * slow), max(20.0 * fast, 10.0 * slow)
    objective = low * (high / low) ** rng.random()
    form = rng.choice(FORMS)
    steepness = {"deadline": 1.0, "soft": rng.uniform(1.0, 4.0), "linear": rng.uniform(0.2, 0.8)}[form]
    return Pool(alike(profiles, rng.choice((1, 2, 2, 4))), objective, utility(form, steepness), JITTER)


def random_kinds(rng: random.Random, count: int) -> tuple[WorkerKind, ...]:
    """So many kinds, the same variants on each.

    Half of the others differ from the first one by a factor, like processors; what a row takes differs more than what a
    run takes whatever its rows in the other half, as with accelerators.
    """
    profiles = random_profiles(rng, rng.choice((2, 3, 3)))
    kinds: list[WorkerKind] = []
    left = WORKERS
    for number in range(count):
        per_row = rng.uniform(1.5, 12.0) ** rng.choice((-1.0, 1.0, 1.0)) if number else 1.0
        fixed = per_row if rng.random() < 0.5 else per_row ** rng.uniform(0.0, 0.7)
        workers = rng.randint(1, left - (count - number - 1))
        left -= workers
        kinds.append(WorkerKind(tuple(_on(each, fixed, per_row) for each in profiles), (0.0,) * workers))
    return tuple(kinds)


def _on(profile: Profile, fixed: float, per_row: float) -> Profile:
    """A variant on workers that are so many times as fast."""
    at_once = min(profile.fixed, 0.8 * profile.seconds[0])
    seconds = tuple(at_once / fixed + (each - at_once) / per_row for each in profile.seconds)
    return Profile(profile.name, profile.accuracy, seconds)


def mixed_pool(rng: random.Random, count: int, jitter: float = 0.0) -> Pool:
    """A pool with so many kinds of workers, two to :data:`WORKERS`, that the quickest one can answer in time.

    Args:
        rng: The source of chance.
        count: Kinds of workers.
        jitter: See :class:`.Pool`.
    """
    found = random_kinds(rng, count)
    quickest = min(kind.profiles[0].seconds[0] for kind in found)
    objective = quickest * 10.0 ** rng.uniform(0.1, 1.0)
    form = rng.choice(FORMS)
    steepness = {"deadline": 1.0, "soft": rng.uniform(1.0, 4.0), "linear": rng.uniform(0.2, 0.8)}[form]
    return Pool(found, objective, utility(form, steepness), jitter)


def random_arrivals(pool: Pool, rng: random.Random, requests: int) -> list[float]:
    """About so many requests, at 5 % to 150 % of the pool's capacity."""
    rate = pool.capacity * rng.uniform(0.05, 1.5)
    duration = min(max(requests, 12.0 * pool.objective * rate), 4.0 * requests) / rate
    period = pool.objective * rng.uniform(10.0, 80.0)
    return arrivals(rng.choice(SHAPES), rate, duration, period, rng)
