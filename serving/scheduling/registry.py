"""Schedulers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tiercel.serving.scheduling.aimd import AimdScheduler
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import Scheduler
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.table import TableScheduler

SCHEDULERS: Mapping[str, Callable[[], Scheduler]] = {
    "heuristic": HeuristicScheduler,
    "table": TableScheduler,
    "aimd": AimdScheduler,
    "static": StaticScheduler,
}
"""What makes a scheduler, by its name; each endpoint has one of its own."""

DEFAULT = "heuristic"
