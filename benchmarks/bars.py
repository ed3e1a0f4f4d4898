"""Print every bar of every result file and whether it holds: ``python -m benchmarks.bars``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.results import (
    KEPT,
    Bar,
    Result,
    ResultFileError,
    differences,
    folder_of,
    judged,
    path_of,
    read_about,
    read_results,
    write_again,
    write_result,
)


def main(
    folder: Annotated[Path, typer.Option(help="Folder with the result files.")] = KEPT,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if a bar does not hold.")] = False,
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Put the derived bars into the files.")] = False,
) -> None:
    """Derive every bar from its figures again, print it, and say whether it holds.

    Exits with 1 where a file's bars are not those that its figures give.
    """
    try:
        results = read_results(folder)
        derived = tuple(replace(result, bars=judged(result.name, result.figures)) for result in results)
    except ResultFileError as error:
        typer.echo(f"Error: {error}; make it again or remove it.", err=True)
        raise typer.Exit(2) from None
    if rewrite:
        for result in derived:
            write_again(result, read_about(path_of(result, folder)), folder)
        results = derived
    _print(derived, as_json=as_json)
    told = [f"{result.name}: {words}" for result in results for words in differences(result)]
    for line in told:
        typer.echo(f"Error: {line}", err=True)
    if told or (strict and not all(bar.holds for _, bar in _pairs(derived))):
        raise typer.Exit(1)


def _print(results: tuple[Result, ...], *, as_json: bool) -> None:
    console = Console()
    if as_json:
        rows = [{"result": result.name, "commit": result.commit, **bar.to_json()} for result, bar in _pairs(results)]
        typer.echo(json.dumps(rows, indent=2))
        return
    if console.is_terminal:
        console.print(_table(results))
    else:
        for result, bar in _pairs(results):
            typer.echo(plain_line(result.name, bar))
    typer.echo(summary(results))


def keep_result(
    name: str, *, command: str, figures: Mapping[str, Any], keep: bool = False, folder: Path | None = None
) -> Result:
    """Write a result file, and tell its bars and where it is."""
    folder = folder_of(folder, keep=keep)
    result = write_result(name, command=command, figures=figures, folder=folder)
    tell_bars(name, result.bars)
    typer.echo(f"Result: {path_of(result, folder)}")
    return result


def tell_bars(name: str, bars: Iterable[Bar]) -> None:
    """Print a line for each bar."""
    for bar in bars:
        typer.echo(plain_line(name, bar))


def plain_line(name: str, bar: Bar) -> str:
    """A bar as a line: verdict, benchmark, what was measured, value, goal."""
    verdict = "holds " if bar.holds else "MISSED"
    return f"{verdict}  {name}: {bar.name}: {shown_value(bar)} (goal {shown_goal(bar)})"


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
        made = f"{result.made_at}\n{result.commit or 'commit not recorded'}"
        for index, bar in enumerate(result.bars):
            table.add_row(
                "" if index else f"{result.name}\n[dim]{made}[/dim]",
                bar.name,
                shown_value(bar),
                shown_goal(bar),
                "[green]yes[/green]" if bar.holds else "[bold red]no[/bold red]",
            )
        table.add_section()
    return table


if __name__ == "__main__":
    typer.run(main)
