"""A server that has no model and hands requests on, with another way to choose between those that have it.

``python -m benchmarks.cluster.front CHOICE`` and then the server's own arguments.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.cluster.bars import OWN, ROUND_ROBIN, TWO_CHOICES
from tiercel.serving.routing import choosing
from tiercel.serving.routing.choosing import Candidate

Choose = Callable[[Sequence[Candidate], float, Callable[[int], int]], int]


def round_robin() -> Choose:
    """One after the other."""
    turns = itertools.count()

    def choose(candidates: Sequence[Candidate], now: float, draw: Callable[[int], int]) -> int:
        del now, draw
        return next(turns) % len(candidates)

    return choose


def two_choices(candidates: Sequence[Candidate], now: float, draw: Callable[[int], int]) -> int:
    """Of two that are drawn, the one with fewer requests under way (Mitzenmacher 2001, The power of two choices)."""
    del now
    first = draw(len(candidates))
    second = (first + 1 + draw(len(candidates) - 1)) % len(candidates) if len(candidates) > 1 else first
    return min((first, second), key=lambda index: candidates[index].load.in_flight)


CHOICES: Final[dict[str, Choose]] = {OWN: choosing.choose, ROUND_ROBIN: round_robin(), TWO_CHOICES: two_choices}


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    from tiercel.serving.main import main as serve

    choosing.choose = CHOICES[arguments[0]]  # type: ignore[assignment]
    sys.argv = [sys.argv[0], *arguments[1:]]
    return serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
