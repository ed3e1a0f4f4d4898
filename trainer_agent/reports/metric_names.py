"""Which metrics of a report go on to the broker: the rule that the trainer library and the agent share. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

MAX_METRICS: Final = 64
"""Of one report."""

MAX_NAMES: Final = 256
"""Different names of metrics in all reports of a run."""

_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,64}", re.ASCII)

BAD_NAME: Final = (
    "metrics are left out whose name is not 1 to 64 characters of A-Z, a-z, 0-9, '_', '.', '/' and '-': rename them"
)
TOO_MANY_METRICS: Final = f"metrics beyond the first {MAX_METRICS} of a report are left out: report fewer at once"
TOO_MANY_NAMES: Final = (
    f"metrics are left out whose name came after the first {MAX_NAMES} different names of the run: use the same names "
    "in each report"
)


class MetricNames:
    """The names that a run has used."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._known = {metric}

    def accepted(self, metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, int]]:
        """What goes on of a report, and how many metrics are left out, by the reason."""
        left_out: dict[str, int] = {}
        kept: dict[str, float] = {}
        for name in self._in_order(metrics):
            reason = self._refusal(name, len(kept))
            if reason:
                left_out[reason] = left_out.get(reason, 0) + 1
            else:
                self._known.add(name)
                kept[name] = metrics[name]
        return kept, left_out

    def _in_order(self, metrics: Mapping[str, float]) -> Iterable[str]:
        if self._metric in metrics:
            yield self._metric
        yield from (name for name in metrics if name != self._metric)

    def _refusal(self, name: str, kept: int) -> str:
        if name == self._metric:
            return ""
        if not _NAME.fullmatch(name):
            return BAD_NAME
        if kept >= MAX_METRICS:
            return TOO_MANY_METRICS
        if name not in self._known and len(self._known) >= MAX_NAMES:
            return TOO_MANY_NAMES
        return ""
