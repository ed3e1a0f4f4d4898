"""What the live experiments have to show, derived from the figures of their result file."""

from __future__ import annotations

from typing import Any

from benchmarks.results import Bar
from benchmarks.scheduling.arms import ARMS, OURS

Json = dict[str, Any]


def bars_of(figures: Json) -> list[Bar]:
    """What the live experiments have to show; blocks with requests beside the jobs count for served quality only."""
    bars = []
    for arm in OURS:
        bars += [
            Bar(f"time to tier 1, {arm} below fair", _percent(figures, "fair", arm, "tier 1"), ">= 45", "%"),
            Bar(
                f"time to tier 1, {arm} below fair-slices",
                _percent(figures, "fair-slices", arm, "tier 1"),
                ">= 40",
                "%",
            ),
            Bar(f"time to tier 1, {arm} below fifo", _percent(figures, "fifo", arm, "tier 1"), ">= 5", "%"),
            Bar(
                f"the same of {arm}, lower end of its interval",
                _percent(figures, "fifo", arm, "tier 1", "low"),
                "> 0",
                "%",
            ),
            Bar(f"makespan, {arm} below fair", _percent(figures, "fair", arm, "makespan"), ">= 0", "%"),
            Bar(f"mean finish, {arm} below fair", _percent(figures, "fair", arm, "finish"), ">= 0", "%"),
            Bar(f"worst finish of a job, {arm} against fair", _of_arm(figures, arm, "worst_finish"), "<= 1.5"),
        ]
    return [*bars, *_common_bars(figures)]


def sanity_bars(figures: Json) -> list[Bar]:
    """What any run has to show, however slow the machine is; of results that counted less, what they counted."""
    complete = figures["runs"] - len(figures["incomplete_runs"])
    bars = [Bar("runs that came to their end", complete, f"== {figures.get('planned_runs', figures['runs'])}")]
    if "delivered" in figures:
        bars += [
            Bar("tiers delivered", figures["delivered"], f"== {figures['tiers']}"),
            Bar("errors in the broker's log", figures["errors"], "== 0"),
            Bar("processes left behind", figures["left_over"], "== 0"),
        ]
    return bars


def _common_bars(figures: Json) -> list[Bar]:
    worst = [
        -gains["makespan"]["mean"] * 100.0
        for gains in figures["gains"].get("fair", {}).values()
        if gains["makespan"] is not None
    ]
    served = figures["served"]["quality"]
    # Who knows the future is nobody to be ahead of.
    others = [quality for arm, quality in served.items() if arm not in OURS and not ARMS[arm].knows_future]
    best = max(others, default=None)
    moving = figures["gains_two_nodes"]
    return [
        Bar("two nodes: makespan, specon below fair", _makespan(moving, "fair", "specon"), ">= 0", "%"),
        Bar("two nodes: makespan, utility below specon", _makespan(moving, "specon", "utility"), ">= 0", "%"),
        Bar("longest makespan of any policy above fair's", max(worst, default=None), "<= 2", "%"),
        *(
            Bar(f"served quality, {arm} above the best other", _above(served.get(arm), best), "> 0", "%")
            for arm in OURS
        ),
        *(
            Bar(f"simulator, runs {how}: median error of a job's time to tier 1", each["median_percent"], "<= 10", "%")
            for how, each in figures["fidelity"]["all"].items()
        ),
        *(
            Bar(f"what-if, {arm}: median error of time to tier", each["learnt"]["median_error"], "<= 0.15")
            for arm, each in figures.get("what_if", {}).items()
            if ARMS[arm].knows_past
        ),
        *sanity_bars(figures),
    ]


def _above(ours: float | None, best: float | None) -> float | None:
    return None if ours is None or best is None else round((ours / best - 1.0) * 100.0, 2)


def _percent(figures: Json, baseline: str, arm: str, measure: str, field: str = "mean") -> float | None:
    found = figures["gains"].get(baseline, {}).get(arm, {}).get(measure)
    return None if found is None or found[field] is None else round(found[field] * 100.0, 2)


def _makespan(gains: Json, baseline: str, arm: str) -> float | None:
    found = gains.get(baseline, {}).get(arm, {}).get("makespan")
    return None if found is None else round(found["mean"] * 100.0, 2)


def _of_arm(figures: Json, arm: str, name: str) -> float | None:
    value: float | None = figures["arms"].get(arm, {}).get(name)
    return value
