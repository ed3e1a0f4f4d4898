"""Where the simulator's chance comes from: streams of numbers that depend on a seed and on nothing else."""

from __future__ import annotations

import random

Random = random.Random


def stream(seed: int, *names: str | int) -> Random:
    """A stream of its own for each combination of names.

    What one part of a simulation draws must not depend on how much another part has drawn: two policies are then
    compared on exactly the same jobs, noise and requests.
    """
    # Text as a seed is hashed by SHA-512, the same in every process.
    return random.Random(":".join(str(part) for part in (seed, *names)))  # noqa: S311 - nothing secret


def log_normal(source: Random, sigma: float) -> float:
    """A factor with median 1 whose logarithm has the standard deviation ``sigma``; 1 exactly when that is 0."""
    return source.lognormvariate(0.0, sigma) if sigma > 0 else 1.0
