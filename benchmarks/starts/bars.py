"""What has to hold of warm starts, derived from the figures of the result file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.results import Bar

Json = dict[str, Any]
WARM_SECONDS = 0.15
AGAIN_SECONDS = 0.3
CONTAINER_SECONDS = 0.5


def bars_of(figures: Json) -> list[Bar]:
    """Of starts, and of suspending and resuming."""
    warm, cold = _seconds(figures["warm"], "step_seconds"), _seconds(figures["cold"], "step_seconds")
    again = [each["stop_seconds"] + each["step_seconds"] for each in figures["resumed"]]
    times = _median(cold) / _median(warm) if warm and cold else None
    same = {each["loss"] for each in (*figures["warm"], *figures["cold"])}
    bars = [
        Bar("order to first step, warm, median", _median(warm), f"<= {WARM_SECONDS:g}", "s"),
        Bar("cold by warm, medians", times, "> 1"),
        Bar("suspended and at its next step again, warm, median", _median(again), f"<= {AGAIN_SECONDS:g}", "s"),
        Bar("different losses of the first step, warm and cold", len(same), "== 1"),
    ]
    return bars + (_of_containers(figures) if "container_warm" in figures else [])


def _of_containers(figures: Json) -> list[Bar]:
    warm, cold = figures["container_warm"], figures["container_cold"]
    seconds = _median(_seconds(warm, "step_seconds"))
    same = {each["loss"] for each in (*warm, *cold)}
    return [
        Bar("order to first step in a container, warm, median", seconds, f"<= {CONTAINER_SECONDS:g}", "s"),
        Bar("different losses of the first step in containers, warm and cold", len(same), "== 1"),
    ]


def _seconds(rows: Sequence[Json], name: str) -> list[float]:
    return [row[name] for row in rows]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
