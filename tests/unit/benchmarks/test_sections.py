from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sections import markers, table, write_section

BEGIN, END = markers("part")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "results.md"
    path.write_text("# Results\n\nBefore.\n", encoding="utf-8")
    return path


def test_a_section_is_put_at_the_end_first_and_replaced_later(document: Path) -> None:
    write_section(document, "part", "first\n")
    document.write_text(document.read_text() + "\nAfter.\n")
    write_section(document, "part", "second")
    assert document.read_text() == f"# Results\n\nBefore.\n\n{BEGIN}\nsecond\n{END}\n\nAfter.\n"


def test_sections_leave_each_other_alone(document: Path) -> None:
    write_section(document, "part", "first")
    write_section(document, "other part", "other")
    write_section(document, "part", "second")
    text = document.read_text()
    assert "other" in text
    assert "first" not in text
    assert text.count(BEGIN) == text.count(END) == 1


@pytest.mark.parametrize("half", [BEGIN, END])
def test_one_marker_without_the_other_is_refused_and_nothing_is_written(document: Path, half: str) -> None:
    document.write_text(f"{half}\n")
    with pytest.raises(ValueError, match="without the other"):
        write_section(document, "part", "text")
    assert document.read_text() == f"{half}\n"


def test_a_table() -> None:
    assert table(["a", "b"], [["1", "2"], ["3", "4"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |"
    with pytest.raises(ValueError, match="3 cells under a header of 2"):
        table(["a", "b"], [["1", "2", "3"]])
