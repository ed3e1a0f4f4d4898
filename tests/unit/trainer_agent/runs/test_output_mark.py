from __future__ import annotations

from pathlib import Path

from tiercel.trainer_agent.runs.output_mark import OutputMark


def position_after(path: Path, log_size: int) -> str:
    """Where the next life of the agent goes on."""
    mark = OutputMark(path, log_size)
    mark.close()
    return mark.position


def test_an_agent_that_dies_before_or_after_it_wrote_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    mark = OutputMark(path, 0)
    assert mark.position == ""
    mark.move("1700000000.000000001", 10)
    assert position_after(path, 0) == ""
    assert position_after(path, 10) == "1700000000.000000001"
    mark.move("1700000000.000000002", 12)
    mark.close()
    assert position_after(path, 11) == "1700000000.000000001"
    assert position_after(path, 12) == "1700000000.000000002"
    assert position_after(path, 99) == "1700000000.000000002"  # with lines of the agent's own behind it


def test_a_file_that_says_nothing_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    for content in ("", "17", "a b c", "\0" * 128):
        path.write_text(content)
        assert position_after(path, 5) == ""
