"""The table at the end, and lines meanwhile: with rich where it is installed, as plain text elsewhere."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
import time
from collections.abc import Mapping

from benchmarks.gpu_check.frame import Findings, Row

_STYLES = {"holds": "green", "MISSED": "bold red", "FAILED": "bold red", "not run": "yellow"}


class Teller:
    """Writes lines with the time that has passed and that is left; to standard error, the table goes to the other.

    Args:
        seconds: All there are.
    """

    def __init__(self, seconds: float) -> None:
        self._began, self._seconds = time.monotonic(), seconds

    def tell(self, line: str) -> None:
        """Write a line."""
        passed = time.monotonic() - self._began
        sys.stderr.write(f"[{passed:4.0f} s, {max(0.0, self._seconds - passed):4.0f} s left] {line}\n")
        sys.stderr.flush()


def print_table(title: str, found: Mapping[str, Findings]) -> None:
    """Print one table of all checks."""
    rows = [(name, row) for name, findings in found.items() for row in findings.rows]
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _print_rich(title, rows)
    else:
        sys.stdout.write("\n".join([title, *(plain_line(name, row) for name, row in rows), ""]))


def plain_line(check: str, row: Row) -> str:
    """A row as lines of text: what, value, goal and verdict; below it what else is to be known."""
    goal = f"(goal {row.goal})" if row.goal else ""
    line = f"{row.verdict:<8} {check:<8} {row.what}: {row.value} {goal}".rstrip(" :")
    return f"{line}\n{textwrap.indent(row.note, ' ' * 18)}" if row.note else line


def summary(found: Mapping[str, Findings]) -> str:
    """All rows in a sentence."""
    verdicts = [row.verdict for findings in found.values() for row in findings.rows]
    counts = {verdict: verdicts.count(verdict) for verdict in ("holds", "MISSED", "FAILED", "not run")}
    told = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    return f"Bars: {', '.join(told) or 'none'}."


def _print_rich(title: str, rows: list[tuple[str, Row]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("Check", "Measured", "Value", "Goal", "Holds", title=title)
    table.columns[2].justify = "right"
    before = ""
    for check, row in rows:
        if before and check != before:
            table.add_section()
        style = _STYLES.get(row.verdict, "")
        verdict = f"[{style}]{row.verdict}[/]" if style else row.verdict
        what = f"{escape(row.what)}\n[dim]{escape(row.note)}[/dim]" if row.note else escape(row.what)
        table.add_row("" if check == before else check, what, row.value, row.goal, verdict)
        before = check
    Console().print(table)
