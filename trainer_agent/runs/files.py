"""What is kept of runs in files: where it lies, and the output and the reports of each run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tiercel.trainer_agent.reports.journal import ReportJournal
from tiercel.trainer_agent.reports.kept import KeptReports
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.trainer_agent.runs.output_mark import OutputMark
from tiercel.v1 import nodes_pb2


@dataclass(frozen=True, slots=True)
class RunPlaces:
    """Where things of runs are kept, below the agent's state directory."""

    state_dir: Path  # the agent's state directory

    def job(self, job_id: str) -> Path:
        """All that the runs of a job are given."""
        return self.jobs / job_id

    @property
    def jobs(self) -> Path:
        """The folders of all jobs."""
        return self.state_dir / "jobs"

    def log(self, run_id: str) -> Path:
        """A run's output."""
        return self.state_dir / "logs" / f"{run_id}.log"

    @property
    def records(self) -> Path:
        """What is remembered of runs."""
        return self.state_dir / "runs"

    def reports(self, run_id: str) -> Path:
        """A run's last reports."""
        return self.records / f"{run_id}.reports"

    @property
    def sockets(self) -> Path:
        """Folders of sockets that runs do not reach."""
        return self.state_dir / "sockets"

    def socket(self, run_id: str) -> Path:
        """The folder of a run's."""
        return self.sockets / run_id

    def mark(self, run_id: str) -> Path:
        """Up to where a run's output is in its log."""
        return self.records / f"{run_id}.output"


class RunFiles:
    """Output and reports of the runs that the broker has not let go of."""

    def __init__(self, places: RunPlaces) -> None:
        self._places = places
        self._logs: dict[str, RunLog] = {}
        self._reports: dict[str, KeptReports] = {}
        self._journals: dict[str, ReportJournal] = {}

    def open(self, run_id: str, goal: Goal) -> None:
        """Open what is kept of a run, or begin it.

        Raises:
            OSError: It cannot be.
        """
        self._logs[run_id] = RunLog(self._places.log(run_id))
        journal = self._journals[run_id] = ReportJournal(self._places.reports(run_id))
        kept = self._reports[run_id] = KeptReports(goal)
        for report in journal.reports():
            kept.add(report)

    def log(self, run_id: str) -> RunLog | None:
        """The output of a run; None for a run that nobody knows, or that has none."""
        return self._logs.get(run_id)

    def reports(self, run_id: str) -> KeptReports | None:
        """What the script of a run has reported, within bounds; None for a run that nobody knows."""
        return self._reports.get(run_id)

    def open_output(self, run_id: str) -> tuple[RunLog, OutputMark]:
        """Where the output of a run goes, and the mark up to where it went there.

        Raises:
            OSError: There cannot be a mark.
        """
        log = self._logs[run_id]
        return log, OutputMark(self._places.mark(run_id), log.size)

    def add_report(self, progress: nodes_pb2.Progress) -> None:
        """Keep a report of a run."""
        kept = self._reports[progress.run_id]
        kept.add(progress)
        self._journals[progress.run_id].append(progress, kept)

    def remove(self, run_id: str) -> None:
        """Remove all that is kept of a run."""
        self._reports.pop(run_id, None)
        journal = self._journals.pop(run_id, None)
        if journal is not None:
            journal.remove()
        self._places.mark(run_id).unlink(missing_ok=True)
        log = self._logs.pop(run_id, None)
        if log is not None:
            log.remove()
