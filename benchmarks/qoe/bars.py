"""What the schedulers of variants have to show, derived from the figures of the result file."""

from __future__ import annotations

from typing import Any

from benchmarks.qoe.compare import Point
from benchmarks.results import Bar

Json = dict[str, Any]
JUDGED = "heuristic"
"""``learned`` was trained towards it and decides alike: what it shows is in the table, and no bar of its own."""


def behind_at(point: Point, points: int) -> Json:
    """How far it is over the best variant alone at a point, with an interval that holds for all points together.

    So many points are compared that some of them are behind by chance: of 72 that are alike, two at 95 % each. What is
    said of all of them is said at 95 % for all together (Bonferroni).
    """
    mean, half = point.difference(JUDGED, point.best_static(), 1.0 - 0.05 / points)
    return {"mean": round(mean, 6), "half_width": round(half, 6)}


def bars_of(figures: Json) -> list[Bar]:
    """What holds at every point and on the whole."""
    points = figures["points"]
    together = [each["over_rival_together"] for each in points if "over_rival_together" in each]
    behind = sum(each["mean"] + each["half_width"] < 0.0 for each in together) if together else None
    over = [each["over_best_static"][JUDGED]["mean"] for each in points]
    against = f"{JUDGED} over the best variant alone"
    share = figures["part_of_optimum"][JUDGED]["mean"]
    return [
        Bar(f"{against}: points of {len(points)} behind by more than chance", behind, "== 0"),
        Bar(f"{against}: mean", round(sum(over) / len(over), 5), ">= 0"),
        Bar(f"{JUDGED}: part of the optimum, small cases", share, ">= 0.95"),
    ]
