"""Trials of new versions as they run: who answers which request, and what both versions did since it began."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.models.canary.judgement import Comparison, Counts, Outcome, Split, decide
from tiercel.serving.models.canary.shadow import Shadow

if TYPE_CHECKING:
    from tiercel.serving.accounting.model_statistics import ModelStatistics
    from tiercel.serving.models.loaded_version import LoadedVersion

# What a full queue or a caller who left says nothing about a version.
_FAULTLESS = frozenset({"REJECTED", "CANCELED"})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trial is, for the process that goes on with it."""

    seconds: float  # since it began
    old: Counts  # requests of the old version since then
    new: Counts  # requests of the new one
    comparison: Comparison  # outputs that were compared


NO_PROGRESS: Final = Progress(0.0, Counts(), Counts(), Comparison())
"""Of a trial that begins."""


class Trial:
    """Two versions of a model, of which the new one gets a share of the requests.

    Args:
        threads: Where runs are done again to compare outputs.
        so_far: What another process saw of it.

    Attributes:
        is_settled: Set when it is over, or when this process will not see its end; ``outcome`` says which.
    """

    def __init__(
        self,
        plan: CanaryPlan,
        old: LoadedVersion,
        new: LoadedVersion,
        threads: Executor,
        now: float,
        so_far: Progress = NO_PROGRESS,
    ) -> None:
        self.plan = plan
        self.old = old
        self.new = new
        self.outcome = Outcome.RUNNING
        self.reason = ""
        self.is_settled = asyncio.Event()
        self._split = Split(plan.fraction)
        self._began = now - so_far.seconds
        self._ended = now
        self._before = _less(_counts(old.statistics), so_far.old), _less(_counts(new.statistics), so_far.new)
        self._found = so_far.old, so_far.new
        self._compared = so_far.comparison
        self._shadow: Shadow | None = None
        if plan.compare_fraction > 0:
            self._shadow = Shadow(new.session, plan.compare_fraction, threads, so_far.comparison)
        old.session.observer = self._shadow

    def choose(self) -> LoadedVersion:
        """Who answers the next request."""
        return self.new if self._split.takes_next() else self.old

    def progress(self, now: float) -> Progress:
        """How far it is."""
        return Progress(now - self._began, *self._since_the_beginning(), self._comparison)

    def look(self, now: float) -> tuple[Outcome, str]:
        """What becomes of it, and why."""
        self._found = self._since_the_beginning()
        return decide(self.plan, now - self._began, *self._found, self._comparison)

    def end(self, outcome: Outcome, reason: str, now: float) -> None:
        """It is over; the versions' sessions are still there."""
        self._found = self._since_the_beginning()
        self._compared, self._shadow = self._comparison, None  # which may be at a run of the session that is freed now
        self.outcome, self.reason, self._ended = outcome, reason, now
        self.old.session.observer = None
        self.is_settled.set()

    def as_json(self, now: float) -> dict[str, Any]:
        """What there is to say about it."""
        running = self.outcome is Outcome.RUNNING
        old, new = self._since_the_beginning() if running else self._found
        comparison = self._comparison
        return {
            "state": self.outcome.value,
            "reason": self.reason,
            "version": self.new.version_text,
            "against": self.old.version_text,
            "fraction": self.plan.fraction,
            "seconds": round((now if running else self._ended) - self._began, 3),
            "new": _as_json(new),
            "old": _as_json(old),
            "compared": {
                "rows": comparison.rows,
                "agreed": comparison.agreed,
                "failed": comparison.failed,
                # JSON has no infinity; outputs of different shapes have no difference.
                "largest_difference": comparison.difference if comparison.difference < float("inf") else None,
            },
        }

    @property
    def _comparison(self) -> Comparison:
        return self._shadow.comparison if self._shadow is not None else self._compared

    def _since_the_beginning(self) -> tuple[Counts, Counts]:
        old, new = _counts(self.old.statistics), _counts(self.new.statistics)
        return _less(old, self._before[0]), _less(new, self._before[1])


def _counts(statistics: ModelStatistics) -> Counts:
    errors = sum(count for reason, count in statistics.failures.items() if reason not in _FAULTLESS)
    return Counts(statistics.successes, errors, statistics.success_seconds)


def _less(now: Counts, before: Counts) -> Counts:
    return Counts(now.answers - before.answers, now.errors - before.errors, now.seconds - before.seconds)


def _as_json(counts: Counts) -> dict[str, Any]:
    return {"answers": counts.answers, "errors": counts.errors, "mean_ms": round(counts.mean_seconds * 1e3, 4)}
