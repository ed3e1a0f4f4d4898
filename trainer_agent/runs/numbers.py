"""What is counted of runs, for whoever watches the node. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tiercel.trainer_agent.limits.contract import Share
from tiercel.trainer_agent.runs.records import RunRecord
from tiercel.v1 import nodes_pb2

STATES: Final = ("starting", "running", "stopping")
OUTCOMES: Final = ("completed", "failed", "stopped", "moved", "lost")
"""How a run ended: with exit code 0, otherwise, as it was asked to, to go on elsewhere, through no fault of the job."""


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """One run that lives."""

    run_id: str  # the run
    job_id: str  # its job
    state: str  # one of :data:`STATES`
    share: Share  # what it may use
    usage: nodes_pb2.RunUsage  # what it has used


@dataclass(slots=True)
class RunTotals:
    """What was counted over the agent's life."""

    ended: Counter[str] = field(default_factory=Counter)  # runs, by outcome
    reports: int = 0  # reports of scripts that came in
    reports_left_out: int = 0  # those of them that gave way to others

    def plus_reports(self, taken_in: int, left_out: int) -> RunTotals:
        """The same, with the reports of one more run."""
        return RunTotals(self.ended, self.reports + taken_in, self.reports_left_out + left_out)


def outcome_of(record: RunRecord, *, was_asked: bool) -> str:
    """How a run ended, one of :data:`OUTCOMES`; ``was_asked``: somebody had asked it to."""
    if record.lost:
        return "lost"
    if record.moved:
        return "moved"
    if was_asked and record.exit_code is not None:
        return "stopped"
    return "completed" if record.exit_code == 0 else "failed"
