"""Print every bar of every result file and whether it holds: ``python -m benchmarks.bars``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.results import RESULTS, Bar, Result, ResultFileError, read_results


def main(
    folder: Annotated[Path, typer.Option(help="Folder with the result files.")] = RESULTS,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if a bar does not hold.")] = False,
) -> None:
    """Print every bar of every result file and whether it holds."""
    try:
        results = read_results(folder)
    except ResultFileError as error:
        typer.echo(f"Error: {error}; make it again or remove it.", err=True)
        raise typer.Exit(2) from None
    console = Console()
    if as_json:
        typer.echo(json.dumps([{"result": result.name, **bar.to_json()} for result, bar in _pairs(results)], indent=2))
    elif console.is_terminal:
        console.print(_table(results))
    else:
        for result, bar in _pairs(results):
            typer.echo(plain_line(result, bar))
    if not as_json:
        typer.echo(summary(results))
    if strict and not all(bar.holds for _, bar in _pairs(results)):
        raise typer.Exit(1)


def plain_line(result: Result, bar: Bar) -> str:
    """A bar as a line: verdict, benchmark, what was measured, value, goal."""
    verdict = "holds " if bar.holds else "MISSED"
    return f"{verdict}  {result.name}: {bar.name}: {shown_value(bar)} (goal {shown_goal(bar)})"


def summary(results: tuple[Result, ...]) -> str:
    """All results in a sentence."""
    verdicts = [bar.holds for _, bar in _pairs(results)]
    if not verdicts:
        return "No results yet; 'make demo' makes the first."
    return f"{sum(verdicts)} of {len(verdicts)} bars hold."


def shown_value(bar: Bar) -> str:
    """The value with its unit; three digits are enough for people."""
    if bar.value is None:
        return "not measured"
    number = f"{bar.value:.3g}" if abs(bar.value) < 1000 else f"{bar.value:.0f}"
    return f"{number} {bar.unit}".rstrip()


def shown_goal(bar: Bar) -> str:
    """The goal with its unit."""
    return f"{bar.goal} {bar.unit}".rstrip()


def _pairs(results: tuple[Result, ...]) -> list[tuple[Result, Bar]]:
    return [(result, bar) for result in results for bar in result.bars]


def _table(results: tuple[Result, ...]) -> Table:
    table = Table("Benchmark", "Measured", "Value", "Goal", "Holds", title="Bars")
    table.columns[2].justify = "right"
    for result in results:
        for index, bar in enumerate(result.bars):
            table.add_row(
                "" if index else f"{result.name}\n[dim]{result.made_at}[/dim]",
                bar.name,
                shown_value(bar),
                shown_goal(bar),
                "[green]yes[/green]" if bar.holds else "[bold red]no[/bold red]",
            )
        table.add_section()
    return table


if __name__ == "__main__":
    typer.run(main)
