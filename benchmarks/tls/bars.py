"""What has to hold of TLS, derived from the figures of the result file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.results import Bar

Json = dict[str, Any]

PLAIN, LOOPS, OWN = "in the clear", "the event loop's TLS", "own layer"
ARMS = (PLAIN, LOOPS, OWN)
MOST = {"same": 0.25, "numbers": 0.15}
"""The part of the rate that TLS may cost, by how bodies differ."""
_WORDS = {"same": "same body", "numbers": "changing bodies"}


def bars_of(figures: Json) -> list[Bar]:
    """Medians over rounds: each round has all doors, one after the other."""
    rows: list[Json] = figures["windows"]
    bars = []
    for bodies, most in MOST.items():
        rounds = _rounds([row for row in rows if row["bodies"] == bodies])
        words = _WORDS[bodies]
        bars += [
            Bar(f"{words}: part of the rate that TLS costs, by CPU a request", _cost(rounds, "cpu_us"), f"<= {most:g}"),
            Bar(f"{words}: part of the rate that TLS costs, as measured", _cost(rounds, "rate"), f"<= {most:g}"),
            Bar(f"{words}: CPU a request, own layer by the event loop's TLS", _over(rounds, "cpu_us"), "< 1"),
        ]
    return [*bars, Bar("requests that failed", sum(row["failed"] for row in rows), "== 0")]


def _rounds(rows: Sequence[Json]) -> list[dict[str, Json]]:
    found: dict[int, dict[str, Json]] = {}
    for row in rows:
        found.setdefault(row["round"], {})[row["door"]] = row
    return [each for each in found.values() if each.keys() == set(ARMS)]


def _cost(rounds: Sequence[dict[str, Json]], figure: str) -> float:
    """What a request in the clear takes, as a part of what it takes by TLS; the rest is what TLS costs."""
    parts = [
        each[PLAIN][figure] / each[OWN][figure] if figure == "cpu_us" else each[OWN][figure] / each[PLAIN][figure]
        for each in rounds
    ]
    return 1 - statistics.median(parts) if parts else float("nan")


def _over(rounds: Sequence[dict[str, Json]], figure: str) -> float:
    return statistics.median(each[OWN][figure] / each[LOOPS][figure] for each in rounds) if rounds else float("nan")
