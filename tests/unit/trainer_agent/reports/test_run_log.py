"""The output of a run on disk."""

from __future__ import annotations

from pathlib import Path

from tiercel.trainer_agent.reports.run_log import RunLog


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    written = b"".join(b"%05d\n" % number for number in range(1000))
    log = RunLog(tmp_path / "logs" / "run.log", head_bytes=60, tail_bytes=120)
    for begin in range(0, len(written), 7):
        log.append(written[begin : begin + 7])
    again = RunLog(tmp_path / "logs" / "run.log", head_bytes=60, tail_bytes=120)
    for each in (log, again):
        assert each.size == len(written)
        assert each.read(0, 1000) == (0, written[:60])
        begin, data = each.read(60, 1000)
        assert len(written) - 160 <= begin <= len(written) - 120
        assert data == written[begin : begin + len(data)]
        assert each.tail(3) == "00997\n00998\n00999"
    again.append(b"more\n")
    assert again.read(len(written), 100) == (len(written), b"more\n")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 60 + 160
    again.remove()
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_line_of_the_agents_own_is_a_line_of_its_own(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.log")
    for line in ("[one]", "[two]"):
        log.append_line(line)
    log.append(b"without an end")
    log.append_line("[three]")
    assert log.read(0, 100)[1] == b"[one]\n[two]\nwithout an end\n[three]\n"


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    first = RunLog(tmp_path / "run.log")
    first.append(b"one\n")
    second = RunLog(tmp_path / "run.log")
    second.append(b"two\n")
    assert second.read(0, 100) == (0, b"one\ntwo\n")
    second.remove()
    assert not (tmp_path / "run.log").exists()
    second.append(b"lost")
    assert second.read(0, 10) == (0, b"")


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.log")
    log.append(b"".join(b"line %d\n" % number for number in range(50)) + b"\xff")
    assert log.tail(3) == "line 48\nline 49\n\ufffd"
