"""Sections of ``docs/results.md`` that benchmarks write: text between two markers that everything else stays around."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from benchmarks.bars import keep_result, shown_goal, shown_value
from benchmarks.results import Bar

Json = dict[str, Any]


def finish(
    name: str,
    *,
    command: str,
    figures: Json,
    keep: bool,
    section: tuple[Path, Callable[[Json, Sequence[Bar]], str]] | None = None,
) -> None:
    """Write a result file and tell its bars; exits with 1 where one does not hold.

    Args:
        name: Of the result.
        command: What made it.
        figures: What was measured.
        keep: Whether the result is kept.
        section: The document that has a section of this name then, and what makes its text.
    """
    result = keep_result(name, command=command, figures=figures, keep=keep)
    if keep and section is not None:
        document, text_of = section
        write_section(document, name, text_of(figures, result.bars))
    if not result.bars or not all(bar.holds for bar in result.bars):
        raise typer.Exit(1)


def write_section(document: Path, name: str, text: str) -> None:
    """Put a text between the markers of a section, or at the document's end when there are none.

    Raises:
        ValueError: There is one marker without the other.
    """
    begin, end = markers(name)
    content = document.read_text(encoding="utf-8")
    if (begin in content) != (end in content):
        raise ValueError(f"{document.name} has one of the markers {begin} and {end} without the other")
    section = f"{begin}\n{text.strip()}\n{end}"
    if begin in content:
        before, _, rest = content.partition(begin)
        content = before + section + rest.partition(end)[2]
    else:
        content = f"{content.rstrip()}\n\n{section}\n"
    document.write_text(content, encoding="utf-8")


def markers(name: str) -> tuple[str, str]:
    """What begins and what ends a section."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def bars_table(what: str, bars: Iterable[Bar]) -> str:
    """Bars as a Markdown table; ``what`` they are heads the first column."""
    rows = [(bar.name, shown_value(bar), shown_goal(bar), "yes" if bar.holds else "**no**") for bar in bars]
    return table((what, "value", "goal", "holds"), rows)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    Raises:
        ValueError: A row has another number of cells than the header.
    """
    lines = [header, ["---"] * len(header), *rows]
    for cells in lines:
        if len(cells) != len(header):
            raise ValueError(f"a row of {len(cells)} cells under a header of {len(header)}: {cells}")
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
