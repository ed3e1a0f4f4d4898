"""Reports outlive the agent, within bounds."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from tiercel.trainer_agent.reports.journal import ReportJournal
from tiercel.v1 import nodes_pb2


def report(sequence: int, name: str = "score") -> nodes_pb2.Progress:
    return nodes_pb2.Progress(run_id="job-1", sequence=sequence, metrics={name: sequence / 10})


def sequences(journal: ReportJournal) -> list[int]:
    return [each.sequence for each in journal.reports()]


def test_what_was_kept_is_there_in_the_next_life(tmp_path: Path) -> None:
    first = ReportJournal(tmp_path / "job-1.reports")
    assert first.reports() == []
    first.append(report(1), ())
    first.append(report(2), ())
    again = ReportJournal(tmp_path / "job-1.reports")
    assert again.reports() == [report(1), report(2)]
    again.remove()
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_was_cut_off_by_a_death_costs_that_report_alone(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    first = ReportJournal(path)
    for number in (1, 2):
        first.append(report(number), ())
    whole = path.read_bytes()
    for cut in range(1, len(whole) // 2 + 1):
        path.write_bytes(whole[:-cut])
        again = ReportJournal(path)
        assert sequences(again) == [1]
        again.append(report(3), ())
        assert sequences(ReportJournal(path)) == [1, 3]


def test_what_nobody_keeps_any_more_goes_before_the_file_has_grown_to_twice_of_it(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    journal, best = ReportJournal(path, room_bytes=1000), report(7)
    kept = [best]
    journal.append(best, kept)
    for number in range(8, 1000):
        kept = [best, *kept[1:][-9:], report(number)]
        journal.append(kept[-1], kept)
        assert path.stat().st_size <= 2000
        assert [each for each in ReportJournal(path).reports() if each in kept] == kept


def test_reports_that_are_larger_than_the_room_are_kept_as_well(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    journal, kept = ReportJournal(path, room_bytes=100), deque[nodes_pb2.Progress](maxlen=5)
    for number in range(1, 50):
        kept.append(report(number, "x" * 900))
        journal.append(kept[-1], kept)
        assert path.stat().st_size <= 2 * 5 * 950
    assert ReportJournal(path).reports()[-5:] == list(kept)


def test_the_bound_of_the_file_is_the_same_in_every_life_of_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    for number in range(1, 1000):
        if number % 20 == 1:
            journal = ReportJournal(path, room_bytes=500)
        journal.append(report(number), [report(number)])
        assert path.stat().st_size <= 1000
