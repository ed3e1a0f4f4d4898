"""Reports outlive the agent, within bounds."""

from __future__ import annotations

from pathlib import Path

from tiercel.trainer_agent.report_journal import ReportJournal
from tiercel.v1 import nodes_pb2


def report(sequence: int, name: str = "score") -> nodes_pb2.Progress:
    return nodes_pb2.Progress(run_id="job-1", sequence=sequence, metrics={name: sequence / 10})


def sequences(journal: ReportJournal) -> list[int]:
    return [each.sequence for each in journal.reports()]


def test_what_was_kept_is_there_in_the_next_life(tmp_path: Path) -> None:
    first = ReportJournal(tmp_path / "job-1.reports")
    assert first.reports() == []
    first.append(report(1))
    first.append(report(2))
    again = ReportJournal(tmp_path / "job-1.reports")
    assert again.reports() == [report(1), report(2)]
    again.remove()
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_was_cut_off_by_a_death_costs_that_report_alone(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    first = ReportJournal(path)
    for number in (1, 2):
        first.append(report(number))
    whole = path.read_bytes()
    for cut in range(1, len(whole) // 2 + 1):
        path.write_bytes(whole[:-cut])
        again = ReportJournal(path)
        assert sequences(again) == [1]
        again.append(report(3))
        assert sequences(ReportJournal(path)) == [1, 3]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    journal = ReportJournal(path, most_reports=10)
    for number in range(1, 200):
        journal.append(report(number))
        kept = sequences(ReportJournal(path, most_reports=10))
        assert kept == sequences(journal) == list(range(kept[0], number + 1))
        assert min(number, 10) <= len(kept) <= 20


def test_only_so_many_bytes_are_kept_and_the_newest_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    journal = ReportJournal(path, most_bytes=3000)
    for number in range(1, 50):
        journal.append(report(number, "x" * 900))
        assert path.stat().st_size <= 2 * 3000
        assert sequences(journal)[-1] == number
    journal.append(report(50, "x" * 9000))
    assert sequences(ReportJournal(path, most_bytes=3000)) == [50]
