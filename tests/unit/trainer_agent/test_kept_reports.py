"""Reports outlive the agent, within bounds."""

from __future__ import annotations

from pathlib import Path

from tiercel.trainer_agent.kept_reports import KeptReports
from tiercel.v1 import nodes_pb2


def report(sequence: int, name: str = "score") -> nodes_pb2.Progress:
    return nodes_pb2.Progress(run_id="job-1", sequence=sequence, metrics={name: sequence / 10})


def sequences(kept: KeptReports) -> list[int]:
    return [each.sequence for each in kept]


def test_what_was_kept_is_there_in_the_next_life(tmp_path: Path) -> None:
    first = KeptReports(tmp_path / "job-1.reports")
    assert (list(first), first.last_sequence) == ([], 0)
    first.append(report(1))
    first.append(report(2))
    again = KeptReports(tmp_path / "job-1.reports")
    assert list(again) == [report(1), report(2)]
    assert again.last_sequence == 2
    again.remove()
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_was_cut_off_by_a_death_costs_that_report_alone(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    first = KeptReports(path)
    for number in (1, 2):
        first.append(report(number))
    whole = path.read_bytes()
    for cut in range(1, len(whole) // 2 + 1):
        path.write_bytes(whole[:-cut])
        again = KeptReports(path)
        assert sequences(again) == [1]
        again.append(report(3))
        assert sequences(KeptReports(path)) == [1, 3]


def test_only_so_many_are_kept_in_memory_and_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    kept = KeptReports(path, most_reports=10)
    for number in range(1, 200):
        kept.append(report(number))
        assert path.stat().st_size <= 21 * (len(report(200).SerializeToString()) + 4)
        assert sequences(KeptReports(path, most_reports=10)) == sequences(kept)
    assert sequences(kept) == list(range(190, 200))


def test_only_so_many_bytes_are_kept_and_the_newest_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "job-1.reports"
    kept = KeptReports(path, most_bytes=3000)
    for number in range(1, 50):
        kept.append(report(number, "x" * 900))
        assert path.stat().st_size <= 7000
    assert sequences(kept) == [47, 48, 49]
    kept.append(report(50, "x" * 5000))
    assert sequences(KeptReports(path, most_bytes=3000)) == [50]
