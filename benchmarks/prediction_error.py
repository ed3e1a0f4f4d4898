"""How far off predictions of tiers are: as drawn, as a new broker tells them, and as one that knows the runs before."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.results import Json
from tiercel.broker.what_if.calibration import calibration
from tiercel.core.what_if import Span

LEAST_SECONDS = 0.5
"""A tier that comes sooner is there before anybody has read the answer."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What futures gave for a tier, and when it came."""

    drawn: Span
    came: float
    with_work: Span | None = None  # what futures give that know the true work of each job
    alone: bool = False  # whether no other job came meanwhile


def figures_of(runs: Sequence[Sequence[Settled]]) -> Json:
    """How far off predictions were: as drawn, as a new broker tells them, and as one that knows the runs before."""
    before: list[tuple[Span, float]] = []
    known = [(each.with_work, each.came) for run in runs for each in run if each.with_work is not None]
    ways: dict[str, list[tuple[Span, float]]] = {
        "drawn": [],
        "new": [],
        "learnt": [],
        "work": known,
        # Live nobody can ask again with the true work.
        "alone": [(each.with_work or each.drawn, each.came) for run in runs for each in run if each.alone],
    }
    for number, run in enumerate(runs):
        learnt = calibration(before)
        for each in run:
            ways["drawn"].append((each.drawn, each.came))
            ways["new"].append((calibration(()).told(each.drawn), each.came))
            if number:
                ways["learnt"].append((learnt.told(each.drawn), each.came))
        before += [(each.drawn, each.came) for each in run]
    return {name: _accuracy(found) for name, found in ways.items()}


def _accuracy(found: Sequence[tuple[Span, float]]) -> Json:
    errors = [(told.seconds - came) / came for told, came in found]
    if len(errors) < 2:
        return {"predictions": len(found), "median_error": None, "in_band": None}
    first, middle, third = statistics.quantiles(map(abs, errors), n=4)
    return {
        "predictions": len(found),
        "median_error": round(middle, 4),
        "quartiles": [round(first, 4), round(third, 4)],
        "bias": round(statistics.median(errors), 4),
        "in_band": round(sum(told.low <= came <= told.high for told, came in found) / len(found), 4),
    }
