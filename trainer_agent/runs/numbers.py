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
    """One run that lives.

    Attributes:
        run_id: The run.
        job_id: Its job.
        state: One of :data:`STATES`.
        share: What it may use.
        usage: What it has used.
    """

    run_id: str
    job_id: str
    state: str
    share: Share
    usage: nodes_pb2.RunUsage


@dataclass(slots=True)
class RunTotals:
    """What was counted over the agent's life.

    Attributes:
        ended: Runs, by outcome.
        reports: Reports of scripts that came in.
        reports_left_out: Those of them that gave way to others.
    """

    ended: Counter[str] = field(default_factory=Counter)
    reports: int = 0
    reports_left_out: int = 0

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
